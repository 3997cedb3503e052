"""Builds a Source of version 0.1 whose dump is a WARC that `warcio` writes: `warc_site.py SITE EXPECTED BASE`.

SITE has the Sitemap and the WARC, and nothing that it lists: only the WARC has the resources. EXPECTED has them as `warcio` reads them.
"""

import gzip
import io
import pathlib
import sys

from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

DATE = "2026-01-02T03:04:05Z"
OLDER = "2026-01-01T00:00:00Z"
TEXT = "".join(f"line {number}: ü\n" for number in range(2000)).encode()


def chunked(body):
    pieces = [body[at : at + 1000] for at in range(0, len(body), 1000)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])


def response(writer, uri, body, headers, date=DATE):
    head = StatusAndHeaders("200 OK", [("Content-Type", "text/plain"), *headers], protocol="HTTP/1.1")
    record = writer.create_warc_record(
        uri, "response", payload=io.BytesIO(body), http_headers=head, warc_headers_dict={"WARC-Date": date}
    )
    writer.write_record(record)
    return record


def write(path, base):
    with open(path, "wb") as file:
        writer = WARCWriter(file, gzip=True)
        writer.write_record(writer.create_warcinfo_record(path.name, {"software": "warcio"}))
        plain = response(writer, f"{base}/data/plain.txt", TEXT, [])
        response(writer, f"{base}/data/chunked.txt", chunked(TEXT), [("Transfer-Encoding", "chunked")])
        coding = ("Content-Encoding", "gzip")
        response(writer, f"{base}/data/coded.txt", gzip.compress(TEXT), [coding])
        both = [coding, ("Transfer-Encoding", "chunked")]
        response(writer, f"{base}/data/both.txt", chunked(gzip.compress(TEXT)), both)
        # The later one counts, wherever it is.
        response(writer, f"{base}/data/twice.txt", b"second", [])
        response(writer, f"{base}/data/twice.txt", b"first", [], OLDER)
        resource = writer.create_warc_record(
            f"{base}/data/resource.bin",
            "resource",
            payload=io.BytesIO(bytes(range(256))),
            warc_content_type="application/octet-stream",
            warc_headers_dict={"WARC-Date": DATE},
        )
        writer.write_record(resource)
        revisit = writer.create_revisit_record(
            f"{base}/data/revisit.txt",
            plain.rec_headers.get_header("WARC-Payload-Digest"),
            f"{base}/data/plain.txt",
            DATE,
            warc_headers_dict={"WARC-Date": DATE},
        )
        writer.write_record(revisit)


def read(path):
    """The content of each URI, with the date of its record."""
    found = {}
    with open(path, "rb") as file:
        for record in ArchiveIterator(file):
            headers = record.rec_headers
            uri, date = headers.get_header("WARC-Target-URI"), headers.get_header("WARC-Date")
            if record.rec_type == "revisit":
                content = found[headers.get_header("WARC-Refers-To-Target-URI")][1]
            elif record.rec_type in ("response", "resource"):
                content = record.content_stream().read()
            else:
                continue
            if date > found.get(uri, ("", b""))[0]:
                found[uri] = (date, content)
    return found


def main(site, expected, base):
    site, expected = pathlib.Path(site), pathlib.Path(expected)
    write(site / "dump.warc.gz", base)
    resources = read(site / "dump.warc.gz")
    assert len(resources) == 7 and resources[f"{base}/data/both.txt"][1] == TEXT
    expected.mkdir()
    entries = ""
    for uri, (date, content) in resources.items():
        (expected / uri.rsplit("/", 1)[1]).write_bytes(content)
        entries += f"<url><loc>{uri}</loc><lastmod>{date}</lastmod></url>"
    sitemap = (
        '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/" '
        'xmlns:xhtml="http://www.w3.org/1999/xhtml">'
        f'<xhtml:meta name="DCTERMS.modified" content="{DATE}"/>'
        f'<xhtml:link rel="http://www.openarchives.org/rs/dump" href="{base}/dump.warc.gz" type="application/warc"/>'
        f"{entries}</urlset>"
    )
    (site / "sitemap.xml").write_text(sitemap)


main(*sys.argv[1:])

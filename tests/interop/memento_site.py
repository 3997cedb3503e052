"""Writes a Source with an archive of its resource's versions: `memento_site.py SITE ARCHIVE BASE MEMENTO`.

SITE is the folder that is served at BASE. ARCHIVE becomes a folder of pywb with the collection `mem`, which is served at
MEMENTO: three versions of one resource. The Source lists the newest one, and a change before that with a link to the TimeGate;
the link to the TimeMap leads to all of them.
"""

import io
import os
import pathlib
import subprocess
import sys

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

VERSIONS = {
    "2013-01-01T18:00:00Z": b"first version \xff\n",
    "2013-01-02T18:00:00Z": b"second version \xfe\n",
    "2013-01-03T18:00:00Z": b"third version \xfd\n",
}
TYPE = "application/octet-stream"
NAMESPACES = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"'


def write_archive(archive, uri):
    archive.mkdir()
    (archive / "config.yaml").write_text("framed_replay: false\nredirect_to_exact: true\n")
    warc = archive / "versions.warc.gz"
    with warc.open("wb") as file:
        writer = WARCWriter(file, gzip=True)
        for at, content in VERSIONS.items():
            head = StatusAndHeaders(
                "200 OK",
                [("Content-Type", TYPE), ("Content-Length", str(len(content)))],
                protocol="HTTP/1.1",
            )
            record = writer.create_warc_record(
                uri,
                "response",
                payload=io.BytesIO(content),
                http_headers=head,
                warc_headers_dict={"WARC-Date": at},
            )
            writer.write_record(record)
    manager = pathlib.Path(sys.executable).parent / "wb-manager"
    for command in (["init", "mem"], ["add", "mem", str(warc)]):
        subprocess.run([manager, *command], cwd=archive, check=True, stdout=subprocess.DEVNULL)


def document(md, entries, up=None):
    up = f'<rs:ln rel="up" href="{up}"/>' if up else ""
    return f"<urlset {NAMESPACES}>{up}<rs:md {md}/>{''.join(entries)}</urlset>"


def entry(uri, inside, lastmod=None):
    lastmod = f"<lastmod>{lastmod}</lastmod>" if lastmod else ""
    return f"<url><loc>{uri}</loc>{lastmod}{inside}</url>"


def write_site(site, base, uri, memento):
    times = sorted(VERSIONS)
    (site / "data").mkdir()
    (site / ".well-known").mkdir()
    resource = site / "data/res.bin"
    resource.write_bytes(VERSIONS[times[-1]])
    os.utime(resource, (1357236000, 1357236000))
    capability_list = f"{base}/capabilitylist.xml"
    time_map = f'<rs:ln rel="timemap" href="{memento}/timemap/link/{uri}" type="application/link-format"/>'
    time_gate = f'<rs:ln rel="timegate" href="{memento}/{uri}"/>'
    capability = lambda name: f'<rs:md capability="{name}"/>'
    change = f'<rs:md change="updated" type="{TYPE}"/>{time_gate}{time_map}'
    written = {
        ".well-known/resourcesync": document(
            'capability="description"', [entry(capability_list, capability("capabilitylist"))]
        ),
        "capabilitylist.xml": document(
            'capability="capabilitylist"',
            [
                entry(f"{base}/{name}.xml", capability(name))
                for name in ("resourcelist", "changelist")
            ],
            f"{base}/.well-known/resourcesync",
        ),
        "resourcelist.xml": document(
            'capability="resourcelist" at="2013-01-03T19:00:00Z"',
            [entry(uri, f'<rs:md type="{TYPE}"/>{time_map}', times[2])],
            capability_list,
        ),
        "changelist.xml": document(
            'capability="changelist" from="2013-01-01T00:00:00Z"',
            [entry(uri, change, at) for at in times[1:]],
            capability_list,
        ),
    }
    for name, text in written.items():
        (site / name).write_text(text)


if __name__ == "__main__":
    site, archive = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    base, memento = sys.argv[3:5]
    uri = f"{base}/data/res.bin"
    write_archive(archive, uri)
    write_site(site, base, uri, memento)

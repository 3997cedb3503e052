"""Builds a Source whose changes can only be applied by patches of independent tools: `patch_site.py STAGE FOLDER BASE`.

STAGE `baseline`: JSON and XML documents in `data`, as Python's json module and lxml write them, and their Resource List.
STAGE `changes`: a Change List with a patch for each of them. The patches of JSON are made by `jsonpatch`, those of XML are written by
hand; the results in `expected` are made by `jsonpatch`, `lxml` and ElementTree. The resources themselves are not served any more.
"""

import copy
import datetime
import hashlib
import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree
import xml.sax.saxutils

import jsonpatch
from lxml import etree

NAMESPACES = (
    'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"'
)
RELATION = "http://www.openarchives.org/rs/terms/patch"

STYLES = {
    "default": {},
    "compact": {"separators": (",", ":")},
    "unicode": {"ensure_ascii": False},
    "indent": {"indent": 2},
    "indent-unicode": {"indent": 2, "ensure_ascii": False},
}

BEFORE = {
    "title": "Größe & <Gewicht>",
    "a/b": {"~": 1.5, "deep": [{"x": None}, [], {}, "é\u007f\u2028"]},
    "list": [1, 2, 3, 4, 5, {"id": 7, "tags": ["a", "b"]}],
    "flag": True,
    "big": 12345678901234567890,
    "small": 1e-07,
}


def changed():
    """Several next versions, by name."""
    edited = copy.deepcopy(BEFORE)
    edited["title"] = "Größe, neu"
    edited["added"] = {"z": 1, "a": [0.1, -0.0]}
    del edited["flag"]
    edited["list"] = [0, 1, 3, 2, 5, {"id": 8, "tags": ["b", "a", "ü"]}]
    moved = copy.deepcopy(BEFORE)
    moved["moved"] = moved.pop("a/b")
    moved["list"].reverse()
    emptied = {"title": "", "list": []}
    return {"edited": edited, "moved": moved, "emptied": emptied}


def json_documents():
    """Name, bytes before, patch, bytes after."""
    for style, options in STYLES.items():
        for name, after in changed().items():
            patch = jsonpatch.make_patch(BEFORE, after)
            result = jsonpatch.apply_patch(BEFORE, patch)
            assert result == after
            for end in ("", "\n"):
                yield (
                    f"{style}-{name}-{len(end)}.json",
                    (json.dumps(BEFORE, **options) + end).encode(),
                    patch.to_string().encode(),
                    (json.dumps(result, **options) + end).encode(),
                )
    # Each operation.
    operations = [
        {"op": "test", "path": "/a~1b/~0", "value": 1.5},
        {"op": "copy", "from": "/list/5", "path": "/list/-"},
        {"op": "move", "from": "/list/0", "path": "/first"},
        {"op": "add", "path": "/list/1", "value": "inserted"},
        {"op": "remove", "path": "/a~1b/deep/0/x"},
        {"op": "replace", "path": "/title", "value": "π"},
    ]
    result = jsonpatch.apply_patch(BEFORE, operations)
    for style in ("compact", "indent-unicode"):
        yield (
            f"operations-{style}.json",
            json.dumps(BEFORE, **STYLES[style]).encode(),
            json.dumps(operations).encode(),
            json.dumps(result, **STYLES[style]).encode(),
        )


XML = """<?xml version='1.0' encoding='UTF-8'?>
<c:catalog xmlns:c="urn:example:catalog" lang="de">
  <!-- a comment -->
  <c:entry id="e1"><title>Größe &amp; Gewicht</title></c:entry>
  <c:entry id="e2" state="old">
    <title>second</title>
  </c:entry>
  <c:entry id="e3"><only/></c:entry>
</c:catalog>"""


def xml_documents():
    """As `json_documents`: what lxml makes of the document, and a patch written by hand that says the same."""
    c = "{urn:example:catalog}"

    def case(name, operations, edit):
        root = etree.fromstring(XML.encode())
        write = lambda: etree.tostring(root.getroottree(), xml_declaration=True, encoding="UTF-8")
        before = write()
        edit(root)
        patch = f'<diff xmlns:k="urn:example:catalog">{operations}</diff>'
        return f"{name}.xml", before, patch.encode(), write()

    def append(root):
        entry = etree.SubElement(root, f"{c}entry", id="e4")
        etree.SubElement(entry, "title").text = "neu: ü < 4"

    def remove_with_space(root):
        entry = root.find(f"{c}entry[@id='e2']")
        before = entry.getprevious()
        before.tail = None
        root.remove(entry)

    def empty(root):
        entry = root.find(f"{c}entry[@id='e3']")
        entry.remove(entry[0])

    def attributes(root):
        root.set("lang", "en")
        entry = root.find(f"{c}entry[@id='e2']")
        del entry.attrib["state"]
        entry.set("checked", "a \"b\" & c")

    def texts(root):
        root.find(f"{c}entry/title").text = "anders"
        root[0].text = " another comment "

    def before_and_after(root):
        entry = root.find(f"{c}entry[@id='e1']")
        entry.addprevious(etree.Comment("first"))
        new = etree.Element("new")
        new.tail = entry.tail
        entry.tail = None
        entry.addnext(new)

    def replace(root):
        entry = root.find(f"{c}entry[@id='e1']")
        title = entry[0]
        new = etree.Element("name", lang="fr")
        new.text = "taille"
        entry.replace(title, new)

    yield case(
        "append",
        '<add sel="k:catalog"><k:entry id="e4"><title>neu: ü &lt; 4</title></k:entry></add>',
        append,
    )
    yield case("space", '<remove sel="*/k:entry[@id=\'e2\']" ws="both"/>', remove_with_space)
    yield case("empty", '<remove sel="k:catalog/k:entry[3]/only"/>', empty)
    yield case(
        "attributes",
        '<replace sel="k:catalog/@lang">en</replace><remove sel="*/k:entry[2]/@state"/>'
        '<add sel="*/k:entry[2]" type="@checked">a "b" &amp; c</add>',
        attributes,
    )
    yield case(
        "texts",
        '<replace sel="*/k:entry[1]/title/text()">anders</replace>'
        '<replace sel="*/comment()[1]"><!-- another comment --></replace>',
        texts,
    )
    yield case(
        "before-and-after",
        '<add sel="*/k:entry[1]" pos="before"><!--first--></add>'
        '<add sel="*/k:entry[@id=\'e1\']" pos="after"><new/></add>',
        before_and_after,
    )
    yield case(
        "replace",
        '<replace sel="*/k:entry[@id=\'e1\']/title"><name lang="fr">taille</name></replace>',
        replace,
    )


def element_tree_document():
    """As `xml_documents`, by Python's ElementTree, which writes empty elements with a space."""
    root = ElementTree.fromstring('<catalog><entry id="1"><only/></entry><entry id="2"/></catalog>')
    before = ElementTree.tostring(root)
    root[0].remove(root[0][0])
    ElementTree.SubElement(root, "new", lang="de")
    patch = '<diff><remove sel="catalog/entry[1]/only"/><add sel="catalog"><new lang="de"/></add></diff>'
    return "element-tree.xml", before, patch.encode(), ElementTree.tostring(root)


def documents():
    for each in json_documents():
        yield (*each, "application/json", "application/json-patch")
    for each in [*xml_documents(), element_tree_document()]:
        yield (*each, "application/xml", "application/xml-patch+xml")


def stated(content):
    return f'hash="sha-256:{hashlib.sha256(content).hexdigest()}" length="{len(content)}"'


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def document(head, entries):
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset {NAMESPACES}>{head}{"".join(entries)}</urlset>\n'


def write_baseline(site, base):
    data = site / "data"
    data.mkdir()
    (site / ".well-known").mkdir()
    entries = []
    for name, before, _, _, media_type, _ in documents():
        (data / name).write_bytes(before)
        entries.append(
            f'<url><loc>{base}/data/{name}</loc><rs:md {stated(before)} type="{media_type}"/></url>'
        )
    time = now()
    (site / "time").write_text(time)
    up = f'<rs:ln rel="up" href="{base}/capabilitylist.xml"/>'
    resource_list = document(f'{up}<rs:md capability="resourcelist" at="{time}"/>', entries)
    (site / "resourcelist.xml").write_text(resource_list)
    change_list = document(f'{up}<rs:md capability="changelist" from="{time}"/>', [])
    (site / "changelist.xml").write_text(change_list)
    capabilities = [
        f'<url><loc>{base}/{name}.xml</loc><rs:md capability="{name}"/></url>'
        for name in ("resourcelist", "changelist")
    ]
    (site / "capabilitylist.xml").write_text(
        document('<rs:md capability="capabilitylist"/>', capabilities)
    )
    sets = [
        f'<url><loc>{base}/capabilitylist.xml</loc><rs:md capability="capabilitylist"/></url>'
    ]
    (site / ".well-known/resourcesync").write_text(
        document('<rs:md capability="description"/>', sets)
    )


def write_changes(site, base):
    patches, expected = site / "patches", site / "expected"
    patches.mkdir()
    expected.mkdir()
    time, entries = now(), []
    for name, _, patch, after, media_type, patch_type in documents():
        (site / "data" / name).unlink()
        (patches / name).write_bytes(patch)
        (expected / name).write_bytes(after)
        href = xml.sax.saxutils.escape(f"{base}/patches/{name}")
        entries.append(
            f'<url><loc>{base}/data/{name}</loc><lastmod>{time}</lastmod>'
            f'<rs:md change="updated" {stated(after)} type="{media_type}"/>'
            f'<rs:ln rel="{RELATION}" href="{href}" type="{patch_type}" {stated(patch)}/></url>'
        )
    begin = (site / "time").read_text()
    up = f'<rs:ln rel="up" href="{base}/capabilitylist.xml"/>'
    change_list = document(f'{up}<rs:md capability="changelist" from="{begin}"/>', entries)
    # Renamed in one step: the Destination may be reading the list.
    (site / "changelist.new").write_text(change_list)
    (site / "changelist.new").rename(site / "changelist.xml")
    print(len(entries))


if __name__ == "__main__":
    stage, folder, base = sys.argv[1:]
    stages = {"baseline": write_baseline, "changes": write_changes}
    stages[stage](pathlib.Path(folder).resolve(), base)

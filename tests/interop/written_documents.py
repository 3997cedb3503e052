"""Reads what the crate `resourcesync` has written: `written_documents.py FOLDER SCHEMA`.

`resync`, the reference implementation, must read the same from each document, and each must be valid. SCHEMA is a folder with `sitemap.xsd`,
the schema of the Sitemap protocol, and `resourcesync.xsd`.
"""

import hashlib
import pathlib
import sys

from lxml import etree
from resync.capability_list import CapabilityList
from resync.change_list import ChangeList
from resync.resource_list import ResourceList
from resync.source_description import SourceDescription

BYTES = b"The first resource.\n"
SITE = "http://example.com/"


def read(kind, path):
    document = kind()
    document.read(uri=path.as_uri())
    return document


def main(folder, schema):
    documents = sorted(folder.glob("*.xml"))
    assert len(documents) == 5, documents
    schemas = etree.XMLSchema(etree.parse(schema / "resourcesync.xsd"))
    for document in documents:
        schemas.assertValid(etree.parse(document))
    # What the schema forbids is noticed.
    invalid = etree.fromstring(documents[0].read_bytes().replace(b"capability=", b"capabilities="))
    assert not schemas.validate(invalid)

    listed = read(ResourceList, folder / "resourcelist.xml")
    assert listed.md_at == "2013-01-03T09:00:00Z", listed.md_at
    assert listed.up == SITE + "capabilitylist.xml", listed.up
    changed = read(ChangeList, folder / "changelist.xml")
    assert changed.md_from == "2013-01-03T09:00:00Z", changed.md_from
    for document, change in [(listed, None), (changed, "updated")]:
        (resource,) = document
        assert resource.uri == SITE + "res1", resource.uri
        assert resource.lastmod == "2013-01-03T09:00:00Z", resource.lastmod
        assert resource.length == len(BYTES), resource.length
        assert resource.sha256 == hashlib.sha256(BYTES).hexdigest(), resource.hash
        assert resource.mime_type == "text/plain", resource.mime_type
        assert resource.change == change, resource.change

    offered = read(CapabilityList, folder / "capabilitylist.xml")
    assert {offer.capability: offer.uri for offer in offered} == {
        "resourcelist": SITE + "resourcelist.xml",
        "changelist": SITE + "changelist.xml",
    }
    (capability_list,) = read(SourceDescription, folder / "description.xml")
    assert capability_list.uri == SITE + "capabilitylist.xml", capability_list.uri


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve())

"""Validates what is published: `valid_documents.py SCHEMA URL…`. SCHEMA: as of written_documents.py; it has no indexes."""

import pathlib
import sys
import urllib.request

from lxml import etree


def main(schema, *urls):
    schemas = etree.XMLSchema(etree.parse(pathlib.Path(schema) / "resourcesync.xsd"))
    for url in urls:
        with urllib.request.urlopen(url, timeout=10) as answer:
            schemas.assertValid(etree.fromstring(answer.read()))


if __name__ == "__main__":
    main(*sys.argv[1:])

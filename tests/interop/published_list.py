"""Waits until a Source Description names a Capability List, and prints it: `published_list.py URL`."""

import sys
import time
import urllib.request

from lxml import etree


def main(url):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = etree.fromstring(answer.read()).findtext(".//{*}loc")
        if found:
            print(found)
            return
        time.sleep(0.1)
    sys.exit(f"{url} names nothing")


if __name__ == "__main__":
    main(*sys.argv[1:])

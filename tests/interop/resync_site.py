"""Builds a Source with resync-build, the reference implementation: `resync_site.py STAGE FOLDER BASE`.

STAGE `baseline`: resources, their Resource List with digests, an empty Change List, Capability List and Source Description.
STAGE `changes`: an update, a creation and a deletion, and the Change List that states them. The Resource List does not
change, so that a Destination has to read the Change List.
"""

import pathlib
import subprocess
import sys

BUILD = pathlib.Path(sys.executable).parent / "resync-build"


def build(*arguments):
    subprocess.run([BUILD, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def write_baseline(site, base):
    data = site / "data"
    (data / "deep/er").mkdir(parents=True)
    (site / ".well-known").mkdir()
    (data / "updated.txt").write_text("first version\n")
    (data / "deleted.txt").write_text("will be deleted\n")
    (data / "kept.bin").write_bytes(bytes(range(256)) * 1000)
    (data / "empty.txt").write_bytes(b"")
    (data / "deep/er/kept.txt").write_text("in a subfolder\n")
    capability_list = f"{base}/capabilitylist.xml"
    description = site / ".well-known/resourcesync"
    build(
        *("--write-resourcelist", "--hash", "md5", "--hash", "sha-256"),
        *("--capabilitylist-link", capability_list),
        *("--paths", data, "--outfile", site / "resourcelist.xml", f"{base}={site}"),
    )
    build(
        *("--write-changelist", "--empty", "--capabilitylist-link", capability_list),
        *("--outfile", site / "changelist.xml"),
    )
    build(
        "--write-capabilitylist",
        f"resourcelist={base}/resourcelist.xml,changelist={base}/changelist.xml",
        *("--sourcedescription-link", f"{base}/.well-known/resourcesync"),
        *("--outfile", site / "capabilitylist.xml"),
    )
    build("--write-sourcedescription", capability_list, "--outfile", description)


def write_changes(site, base):
    data = site / "data"
    (data / "updated.txt").write_text("second version, longer than the first\n")
    (data / "created.txt").write_text("new\n")
    (data / "deleted.txt").unlink()
    build(
        *("--write-changelist", "--hash", "md5", "--hash", "sha-256"),
        *("--capabilitylist-link", f"{base}/capabilitylist.xml"),
        *("--reference", site / "resourcelist.xml"),
        *("--paths", data, "--outfile", site / "changelist.new", f"{base}={site}"),
    )
    # Renamed in one step: the Destination may be reading the list.
    (site / "changelist.new").rename(site / "changelist.xml")


if __name__ == "__main__":
    stage, folder, base = sys.argv[1:]
    stages = {"baseline": write_baseline, "changes": write_changes}
    stages[stage](pathlib.Path(folder).resolve(), base)

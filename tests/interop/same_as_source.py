"""Compares a mirror with the sample Source: `same_as_source.py SOURCE_URL MIRROR NAME…`.

Each named resource must have the same bytes in the mirror and at the Source. There must be no other file.
"""

import pathlib
import sys
import urllib.parse
import urllib.request


def main(source, mirror, names):
    folder = pathlib.Path(mirror) / urllib.parse.urlsplit(source).netloc / "set1/res"
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    faults = [f"{name} is not expected" for name in sorted(found - set(names))]
    for name in names:
        if name not in found:
            faults.append(f"{name} is missing")
            continue
        with urllib.request.urlopen(f"{source}set1/res/{name}", timeout=10) as response:
            if response.read() != (folder / name).read_bytes():
                faults.append(f"{name} differs from the Source")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))

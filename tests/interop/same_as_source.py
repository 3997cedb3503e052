"""Compares a mirror with the sample Source: `same_as_source.py SOURCE_URL MIRROR NAME…`.

Each named resource of the set must be in the mirror just as the Source serves it, and there must be no other file.
"""

import pathlib
import sys
import urllib.parse
import urllib.request


def main(source, mirror, names):
    place = pathlib.Path(mirror) / urllib.parse.urlsplit(source).netloc / "set1/res"
    found = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}
    faults = [f"{name} should not be there" for name in sorted(found - set(names))]
    for name in names:
        if name not in found:
            faults.append(f"{name} is missing")
            continue
        with urllib.request.urlopen(f"{source}set1/res/{name}", timeout=10) as answer:
            if answer.read() != (place / name).read_bytes():
                faults.append(f"{name} is not what the Source serves")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))

#!/usr/bin/env python3
"""Has a daemon follow a folder that another one publishes, for hours: `soak.py RESYNCD HOURS [FOLDER]`.

Twenty files a second are written or removed. Each hour, or after each sixth of the time if that is less, one of the daemons is killed
and started again, by turns. Each minute a line states, of both, the memory, the open files, the bytes of the database and the lines of
the log so far. At the end the mirror must be in sync and like the folder, the audit must find nothing, and what the lines state must be
flat: the median of the last quarter at most 1.2 times that of the second one.

HOURS is at least 0.2. FOLDER, a new temporary one by default, has everything; it stays if something is wrong.
"""

import json
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from running import answers, free_port, until

CHANGES_A_SECOND = 20
FILES = 300
FLAT = 1.2
# What differs by less is no growth: bytes, files, bytes, lines.
NOISE = {"memory": 4 << 20, "files": 5, "database": 4 << 20, "lines": 20}


class Daemon:
    """A daemon that is started as often as needed, with one log."""

    def __init__(self, program, folder, name, settings):
        self.state = folder / f"{name}-state"
        self.config, self.log = folder / f"{name}.toml", folder / f"{name}.log"
        self.status = f"http://127.0.0.1:{free_port()}"
        address = self.status.removeprefix("http://")
        self.config.write_text(
            f'state_dir = "{self.state}"\n[status]\nlisten = "{address}"\n[http]\nallow_private_addresses = true\n{settings}'
        )
        self.command, self.process = [program, "--config", self.config], None

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*self.command, "run"], stdout=log, stderr=log)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(60) != 0:
            sys.exit(f"{self.config} ended with {self.process.returncode}")

    def asked(self):
        """The status; None: it does not answer."""
        answer = answers(f"{self.status}/status")
        return answer and json.loads(answer)

    def figures(self):
        process = pathlib.Path(f"/proc/{self.process.pid}")
        memory = next(line for line in (process / "status").read_text().splitlines() if line.startswith("VmRSS"))
        with self.log.open("rb") as log:
            lines = sum(1 for _ in log)
        return {
            "memory": int(memory.split()[1]) << 10,
            "files": len(list((process / "fd").iterdir())),
            "database": sum(file.stat().st_size for file in self.state.glob("resyncd.db*")),
            "lines": lines,
        }


def change_one(source, chance):
    file = source / f"r{chance.randrange(FILES):04}.txt"
    if file.exists() and chance.randrange(5) == 0:
        file.unlink()
        return
    written = source / f".{file.name}"
    written.write_text(f"{chance.getrandbits(64):016x}\n" * chance.randrange(2, 240))
    written.rename(file)


def change_until(end, source, chance):
    """Changes the files at their pace; returns how many were changed."""
    begun, changed = time.monotonic(), 0
    while (now := time.monotonic()) < end:
        while changed < (now - begun) * CHANGES_A_SECOND:
            change_one(source, chance)
            changed += 1
        time.sleep(0.05)
    return changed


def texts(folder):
    return {file.name: file.read_bytes() for file in folder.glob("*.txt")}


def growths(lines):
    """What is not flat; `lines` of each minute."""
    quarter = len(lines) // 4
    for daemon in lines[0]:
        for figure in lines[0][daemon]:
            values = [line[daemon][figure] for line in lines]
            if figure == "lines":
                values = [after - before for before, after in zip(values, values[1:])]
            early = statistics.median(values[quarter : 2 * quarter])
            late = statistics.median(values[-quarter:])
            print(f"{daemon} {figure}: {early:.0f} in the second quarter, {late:.0f} in the last one")
            if late > early * FLAT and late - early > NOISE[figure]:
                yield f"{daemon} {figure}"


def main(program, hours, folder):
    source, mirror = folder / "source", folder / "mirror"
    source.mkdir(parents=True)
    published, callback = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    publishing = Daemon(
        program,
        folder,
        "publishing",
        f'[publish]\nlisten = "{published}"\n[[publish.folder]]\nname = "soak"\npath = "{source}"\n',
    )
    following = Daemon(
        program,
        folder,
        "following",
        f'[callback]\nlisten = "{callback}"\npublic_url = "http://{callback}/"\n'
        f'[[source]]\nname = "soak"\nurl = "http://{published}/"\nmirror = "{mirror}"\n',
    )
    chance = random.Random(1)
    for _ in range(FILES):
        change_one(source, chance)
    publishing.start()
    until("published", lambda: (publishing.asked() or {}).get("publish", {}).get("sets"))
    following.start()

    def is_in_sync():
        status = following.asked()
        sets = [each for of_source in status["sources"] for each in of_source["sets"]] if status else []
        return sets and all(each["state"] == "in-sync" and each["pending"] == 0 for each in sets)

    until("in sync", is_in_sync)
    lines, changed, kills = [], 0, 0
    begun = time.monotonic()
    end = begun + hours * 3600
    pace = min(3600, hours * 3600 / 6)
    while (now := time.monotonic()) < end:
        changed += change_until(min(now + 60, end), source, chance)
        lines.append({"following": following.figures(), "publishing": publishing.figures()})
        print(json.dumps({"minute": len(lines), "changed": changed, "kills": kills, **lines[-1]}), flush=True)
        if time.monotonic() - begun > (kills + 1) * pace and time.monotonic() < end:
            killed = publishing if kills % 2 else following
            killed.kill()
            killed.start()
            kills += 1

    def is_equal():
        return is_in_sync() and texts(mirror / published / "soak") == texts(source)

    # What was lost with a kill is found by the next poll.
    subprocess.run([*following.command, "poll", "soak"], check=True)
    until("the mirror is like the folder", is_equal, 600)
    following.stop()
    subprocess.run([*following.command, "audit"], check=True)
    publishing.stop()
    grown = list(growths(lines))
    print(f"{changed} changes, {kills} kills, {hours} hours: " + ("grown: " + ", ".join(grown) if grown else "flat, in sync"))
    if grown:
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or float(sys.argv[2]) < 0.2:
        sys.exit(__doc__)
    where = sys.argv[3] if len(sys.argv) == 4 else tempfile.mkdtemp(prefix="resyncd-soak-")
    main(str(pathlib.Path(sys.argv[1]).resolve()), float(sys.argv[2]), pathlib.Path(where).resolve())

"""The state in a PostgreSQL database: test_postgres.py RESYNCD FOLDER URL.

Variables have the commands for the server: STOP, START, DUMP and RESTORE of the database, and PROMOTE of a standby."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))
from running import PATIENCE, answers, free_port, get, until  # noqa: E402

RESYNCD, WORK, DATABASE = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
# After so many seconds another daemon has taken the place of one that was killed.
TAKEOVER = 30


def server(command):
    subprocess.run(["bash", "-c", os.environ[command]], check=True)


def step(text):
    print(f"postgres: {text}", flush=True)


class Node:
    """A daemon with a state folder of its own."""

    def __init__(self, name, origin, more=""):
        self.name, self.folder = name, WORK / name
        self.folder.mkdir()
        self.status, callback = free_port(), free_port()
        self.config = self.folder / "config.toml"
        self.config.write_text(f"""
state_dir = "state"
http = {{ allow_private_addresses = true }}
status = {{ listen = "127.0.0.1:{self.status}" }}
callback = {{ listen = "127.0.0.1:{callback}", public_url = "http://127.0.0.1:{callback}/" }}

[store]
url = "{DATABASE}"
node = "{name}"
{more}
[[source]]
name = "theses"
url = "http://{origin}/"
mirror = "{WORK / 'mirror'}"
poll_interval = "10s"
""")
        self.daemon = None

    def start(self):
        log = (self.folder / "log").open("a")
        self.daemon = subprocess.Popen([RESYNCD, "run", "--config", str(self.config)], stderr=log)

    def run(self, *arguments, expected=0):
        command = [RESYNCD, *arguments, "--config", str(self.config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == expected, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def source(self):
        status = answers(f"http://127.0.0.1:{self.status}/status")
        return status and json.loads(status)["sources"][0]

    def is_ready(self):
        return answers(f"http://127.0.0.1:{self.status}/readyz") is not None

    def changes(self):
        """The whole feed: its id, and each entry by its number."""
        found, since, feed = {}, 0, None
        while lines := get(f"http://127.0.0.1:{self.status}/changes?since={since}&limit=1000"):
            for entry in map(json.loads, lines.splitlines()):
                assert entry["seq"] > since, entry
                since, feed = entry["seq"], entry["feed"]
                found[since] = (entry["uri"], entry["change"])
        return feed, found

    def stop(self, how=signal.SIGTERM):
        self.daemon.send_signal(how)
        return self.daemon.wait(timeout=PATIENCE)

    def log(self):
        return (self.folder / "log").read_text()


def main():
    folder = WORK / "theses"
    folder.mkdir()
    for number in range(500):
        (folder / f"{number}.txt").write_text(f"thesis {number}")
    origin = f"127.0.0.1:{free_port()}"
    publishing = subprocess.Popen(
        [RESYNCD, "publish", str(folder), "--listen", origin, "--state", str(WORK / "published")],
        stdout=subprocess.DEVNULL,
        stderr=(WORK / "publish.log").open("w"),
    )
    mirrored = WORK / "mirror" / origin / "theses"

    def is_in_step():
        names = {path.name for path in folder.iterdir()}
        if not mirrored.is_dir() or {path.name for path in mirrored.iterdir()} != names:
            return False
        return all((mirrored / name).read_bytes() == (folder / name).read_bytes() for name in names)

    one, two = Node("one", origin), Node("two", origin)
    stopped = threading.Event()

    def change():
        number = 0
        while not stopped.wait(0.05):
            number += 1
            changed = folder / f".{number % 400}"
            changed.write_text(f"thesis {number % 400}, changed as number {number}")
            changed.rename(folder / f"{number % 400}.txt")
            if number % 20 == 0:
                (folder / f"{400 + number // 20 % 100}.txt").unlink(missing_ok=True)

    try:
        one.start()
        until("a first copy", is_in_step)
        assert one.source()["node"] == "one", one.source()
        step("first copy of 500 files")

        two.start()
        until("a standby", lambda: "standby: the node one works on the database" in two.log())
        nodes = one.run("nodes")
        assert "one: works on the database" in nodes and "two: seen" in nodes, nodes
        assert "database-held" in two.run("audit", "--repair", expected=1)
        step("a second daemon waits")

        changing = threading.Thread(target=change)
        changing.start()
        time.sleep(3)
        one.daemon.kill()
        one.daemon.wait()
        killed = time.monotonic()
        until("a takeover", lambda: (source := two.source()) and source["node"] == "two", TAKEOVER)
        step(f"taken over {time.monotonic() - killed:.0f} s after a kill")

        one.start()
        time.sleep(3)
        two.daemon.send_signal(signal.SIGSTOP)
        paused = time.monotonic()
        until("a takeover", lambda: (source := one.source()) and source["node"] == "one", TAKEOVER)
        step(f"taken over {time.monotonic() - paused:.0f} s after a pause")
        two.daemon.send_signal(signal.SIGCONT)
        assert two.daemon.wait(timeout=PATIENCE) == 1
        assert "another node has taken the place of this one" in two.log()
        step("the paused one has ended")

        two.start()
        until("a standby", lambda: two.log().count("standby:") == 2)
        one.stop()
        stopped_at = time.monotonic()
        until("a takeover", lambda: (source := two.source()) and source["node"] == "two", 10)
        step(f"taken over {time.monotonic() - stopped_at:.0f} s after a stop")

        for _ in range(3):
            server("STOP")
            until("not ready", lambda: not two.is_ready())
            server("START")
            until("ready", two.is_ready)
        step("the server was restarted three times")
        server("STOP")
        server("PROMOTE")
        until("ready", two.is_ready)
        assert two.daemon.poll() is None, two.log()[-3000:]
        stopped.set()
        changing.join()
        until("in step after restarts of the server", is_in_step)
        step("its standby was promoted")

        until("in sync", lambda: two.source()["sets"][0]["state"] == "in-sync")
        assert "in sync" in two.run("audit")
        two.run("sync", "--dry-run")
        assert "state-on-server" in two.run("backup", str(WORK / "copy.db"), expected=1)
        two.run("check", "--environment")

        former, _ = two.changes()
        server("DUMP")
        (folder / "later.txt").write_text("later")
        (folder / "410.txt").write_text("changed later")
        until("in step after the dump", is_in_step)
        two.stop()
        server("RESTORE")
        assert former not in two.run("store", "new-feed")
        two.run("audit", "--repair")
        two.start()
        until("in step after the restored database", lambda: two.source() and is_in_step())
        until("in sync", lambda: two.source()["sets"][0]["state"] == "in-sync")
        assert "in sync" in two.run("audit")
        feed, changes = two.changes()
        assert feed != former
        step("the database was one of an earlier time")

        two.stop()
        two.run("store", "copy", DATABASE, str(WORK / "copied"))
        assert "state-exists" in two.run("store", "copy", str(WORK / "copied"), DATABASE, expected=1)
        copied = two.config.read_text().replace(f'url = "{DATABASE}"', "").replace('"state"', f'"{WORK / "copied"}"')
        two.config.write_text(copied)
        two.start()
        (folder / "new.txt").write_text("new")
        until("the new file", is_in_step)
        until("its entry", lambda: two.source() and len(two.changes()[1]) > len(changes))
        again = two.changes()
        assert again[0] == feed and {**again[1], **changes} == again[1], "the feed goes on"
        assert "in sync" in two.run("audit")
        step("the state was moved to SQLite")
        two.stop()
    except BaseException:
        for node in (one, two):
            sys.stderr.write(f"--- {node.name}\n{node.log()[-6000:]}\n")
        raise
    finally:
        stopped.set()
        for process in (publishing, one.daemon, two.daemon):
            if process and process.poll() is None:
                process.kill()


main()

"""The state in a PostgreSQL database: test_postgres.py RESYNCD FOLDER URL. RESTART and FAILOVER are commands: what restarts the server, and what ends it and promotes its
standby."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

RESYNCD, WORK, DATABASE = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
PATIENCE = 300
# After so many seconds another daemon has taken the place of one that was killed.
TAKEOVER = 30


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def step(text):
    print(f"postgres: {text}", flush=True)


def until(what, condition, patience=PATIENCE):
    begin = time.monotonic()
    while not (found := condition()):
        assert time.monotonic() < begin + patience, f"not within {patience} s: {what}"
        time.sleep(0.2)
    return found


def fetch(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read()


def get(url):
    try:
        return json.loads(fetch(url))
    except OSError:
        return None


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
        status = get(f"http://127.0.0.1:{self.status}/status")
        return status and status["sources"][0]

    def changes(self):
        """The whole feed: its id, and each entry by its number."""
        found, since, feed = {}, 0, None
        while lines := fetch(f"http://127.0.0.1:{self.status}/changes?since={since}&limit=1000"):
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
            subprocess.run(["bash", "-c", os.environ["RESTART"]], check=True)
            time.sleep(3)
        step("the server was restarted three times")
        subprocess.run(["bash", "-c", os.environ["FAILOVER"]], check=True)
        time.sleep(3)
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
        feed, changes = two.changes()
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
        two.stop()
        assert feed not in two.run("store", "new-feed")
        step("the state was moved to SQLite")
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

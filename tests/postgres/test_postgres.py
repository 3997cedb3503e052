"""The state in a PostgreSQL database: test_postgres.py RESYNCD FOLDER URL.

Variables have the commands for the server: STOP, START, DUMP and RESTORE of the database, and PROMOTE of a standby. KILLS: how many daemons are
killed or paused at random (default: 4)."""

import itertools
import json
import os
import random
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))
from running import PATIENCE, answers, free_port, get, until  # noqa: E402

RESYNCD, WORK, DATABASE = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
KILLS = int(os.environ.get("KILLS", "4"))
# After so many seconds others follow the Sources of a daemon that was killed.
TAKEOVER = 30
# After so many seconds the Sources are spread over the daemons.
BALANCE = 120
SOURCES = ["articles", "books", "maps", "theses"]
FILES = 100


def server(command):
    subprocess.run(["bash", "-c", os.environ[command]], check=True)


def step(text):
    print(f"postgres: {text}", flush=True)


class Balancer(socketserver.ThreadingTCPServer):
    """Passes each connection on to another one of the daemons that listen."""

    allow_reuse_address, daemon_threads = True, True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Connection)
        self.ports = []
        self.turns = itertools.count()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def connect(self):
        first = next(self.turns)
        for turn in range(first, first + len(self.ports)):
            try:
                return socket.create_connection(("127.0.0.1", self.ports[turn % len(self.ports)]), 5)
            except OSError:
                continue
        return None


class Connection(socketserver.BaseRequestHandler):
    def handle(self):
        daemon = self.server.connect()
        if daemon is None:
            return
        with daemon:
            daemon.settimeout(30)
            self.request.settimeout(30)
            answering = threading.Thread(target=self.pass_on, args=(daemon, self.request))
            answering.start()
            self.pass_on(self.request, daemon)
            answering.join()

    @staticmethod
    def pass_on(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class Source:
    """A folder that is published and changes."""

    def __init__(self, name):
        self.name, self.folder, self.mirror = name, WORK / name, WORK / "mirrors" / name
        self.folder.mkdir()
        self.origin = f"127.0.0.1:{free_port()}"
        for number in range(FILES):
            self.write(number, "as it was")
        command = [RESYNCD, "publish", str(self.folder), "--listen", self.origin, "--state", str(WORK / f"{name}.published")]
        self.publishing = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=(WORK / f"{name}.log").open("w"))

    def write(self, number, text):
        changed = self.folder / f".{number}"
        changed.write_text(f"{self.name} {number} {text}")
        changed.rename(self.folder / f"{number}.txt")

    def is_in_step(self):
        mirrored = self.mirror / self.origin / self.name
        names = {path.name for path in self.folder.iterdir()}
        if not mirrored.is_dir() or {path.name for path in mirrored.iterdir()} != names:
            return False
        return all((mirrored / name).read_bytes() == (self.folder / name).read_bytes() for name in names)


class Node:
    """A daemon with a state folder of its own."""

    def __init__(self, name, sources, balancer):
        self.name, self.folder = name, WORK / name
        self.folder.mkdir()
        self.status, callback = free_port(), free_port()
        balancer.ports.append(callback)
        self.config = self.folder / "config.toml"
        public = balancer.server_address[1]
        followed = "".join(
            f"""
[[source]]
name = "{source.name}"
url = "http://{source.origin}/"
mirror = "{source.mirror}"
poll_interval = "5m"
"""
            for source in sources
        )
        self.config.write_text(f"""
state_dir = "state"
http = {{ allow_private_addresses = true }}
status = {{ listen = "127.0.0.1:{self.status}" }}
callback = {{ listen = "127.0.0.1:{callback}", public_url = "http://127.0.0.1:{public}/" }}

[store]
url = "{DATABASE}"
node = "{name}"
{followed}""")
        self.daemon = None

    def start(self):
        log = (self.folder / "log").open("a")
        self.daemon = subprocess.Popen([RESYNCD, "run", "--config", str(self.config)], stderr=log)
        until(f"{self.name} is ready", self.is_ready)

    def run(self, *arguments, expected=0):
        command = [RESYNCD, *arguments, "--config", str(self.config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == expected, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def is_ready(self):
        assert self.daemon.poll() is None, "it has ended"
        return answers(f"http://127.0.0.1:{self.status}/readyz") is not None

    def sources(self):
        status = answers(f"http://127.0.0.1:{self.status}/status")
        return {source["name"]: source for source in json.loads(status)["sources"]} if status else {}

    def holders(self):
        """The Sources by the nodes that follow them, as this one states it."""
        found = {}
        for name, source in self.sources().items():
            found.setdefault(source.get("node"), []).append(name)
        return found

    def follows_all(self):
        return set(self.holders()) == {self.name}

    def is_in_sync(self):
        found = self.sources().values()
        return found and all(it["sets"] and it["sets"][0]["state"] == "in-sync" for it in found)

    def changes(self, since=0):
        """The feed: its id, and each entry by its number."""
        found, feed = {}, None
        while lines := get(f"http://127.0.0.1:{self.status}/changes?since={since}&limit=1000"):
            for entry in map(json.loads, lines.splitlines()):
                assert entry["seq"] > since, entry
                since, feed = entry["seq"], entry["feed"]
                found[since] = entry
        return feed, found

    def stop(self, how=signal.SIGTERM):
        self.daemon.send_signal(how)
        return self.daemon.wait(timeout=PATIENCE)

    def log(self):
        return (self.folder / "log").read_text()


class Reader:
    """Reads the feed from any of the daemons: what it has not seen by then must never appear before what it has."""

    def __init__(self, nodes):
        self.nodes, self.found, self.stopped = nodes, {}, threading.Event()
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        while not self.stopped.wait(0.1):
            try:
                _, found = random.choice(self.nodes).changes(max(self.found, default=0))
                self.found |= found
            except OSError:
                continue

    def check(self, node):
        self.stopped.set()
        self.thread.join()
        _, found = node.changes()
        missed = {number for number in found if number <= max(self.found)} - set(self.found)
        assert not missed, f"entries appeared after later ones: {sorted(missed)[:10]}"
        last = {}
        for number, entry in sorted(found.items()):
            stated = (entry["change"], entry.get("digest"), entry.get("length"))
            assert last.get(entry["uri"]) != stated or not stated[1], f"twice: {entry}"
            last[entry["uri"]] = stated
        return len(found)


def main():
    sources = [Source(name) for name in SOURCES]
    balancer = Balancer()
    one, two, three = nodes = [Node(name, sources, balancer) for name in ("one", "two", "three")]
    stopped = threading.Event()

    def change():
        for number in itertools.count(1):
            if stopped.wait(0.02):
                return
            source = random.choice(sources)
            source.write(number % (FILES * 4 // 5), f"changed as number {number}")
            if number % 20 == 0:
                (source.folder / f"{FILES * 4 // 5 + number // 20 % (FILES // 5)}.txt").unlink(missing_ok=True)

    def are_in_step():
        return all(source.is_in_step() for source in sources)

    reader = None
    try:
        one.start()
        until("a first copy", are_in_step)
        until("one follows all", one.follows_all)
        step("first copy")

        changing = threading.Thread(target=change)
        changing.start()
        reader = Reader([one, two])
        two.start()
        begun = time.monotonic()
        spread = until("two follows its share", lambda: len((found := two.holders()).get("two", [])) == 2 and found, BALANCE)
        until("the same at one", lambda: one.holders() == spread)
        step(f"two daemons share the Sources after {time.monotonic() - begun:.0f} s")

        at_two = spread["two"][0]
        assert "database-held" in three.run("sync", expected=1)
        one.run("poll", at_two)
        one.run("pause", at_two)
        until("a pause", lambda: one.sources()[at_two]["paused_since"] and two.sources()[at_two]["paused_since"])
        one.run("resume", at_two)
        until("a resumption", lambda: not one.sources()[at_two]["paused_since"])
        assert at_two in get(f"http://127.0.0.1:{one.status}/page/sources/{at_two}").decode()
        metrics = get(f"http://127.0.0.1:{one.status}/metrics").decode()
        followed = [line for line in metrics.splitlines() if line.startswith("resyncd_source_node{")]
        assert len(followed) == 2 and all('node="one"' in line for line in followed), followed
        step("each daemon answers for all")

        one.run("move", at_two, "one")
        assert at_two in two.holders()["one"]
        assert "unknown-node" in one.run("move", at_two, "four", expected=1)
        assert "unknown-source" in one.run("move", "letters", "two", expected=1)
        one.run("drain", "one")
        until("two follows all", two.follows_all)
        assert "one: works" in two.run("nodes") and "drains" in two.run("nodes")
        one.run("drain", "one", "--undo")
        until("one follows some again", lambda: "one" in two.holders(), BALANCE)
        step("moved, and drained")

        one.daemon.kill()
        one.daemon.wait()
        killed = time.monotonic()
        until("a takeover", two.follows_all, TAKEOVER)
        step(f"taken over {time.monotonic() - killed:.0f} s after a kill")

        one.start()
        until("one follows some again", lambda: "one" in two.holders(), BALANCE)
        two.daemon.send_signal(signal.SIGSTOP)
        paused = time.monotonic()
        until("a takeover", one.follows_all, TAKEOVER)
        step(f"taken over {time.monotonic() - paused:.0f} s after a pause")
        two.daemon.send_signal(signal.SIGCONT)
        assert two.daemon.wait(timeout=PATIENCE) == 1
        assert "another node has taken the place of this one" in two.log()
        step("the paused one has ended")

        two.start()
        until("two follows some again", lambda: "two" in one.holders(), BALANCE)
        one.stop()
        left = time.monotonic()
        until("a takeover", two.follows_all, 10)
        step(f"taken over {time.monotonic() - left:.0f} s after a stop")
        one.start()
        three.start()

        for number in range(KILLS):
            victim = random.choice([one, two, three])
            how = random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
            victim.daemon.send_signal(how)
            time.sleep(random.uniform(1, 28))
            if how == signal.SIGSTOP:
                victim.daemon.send_signal(signal.SIGCONT)
                # It may have been found dead.
                time.sleep(2)
            if victim.daemon.poll() is None and how != signal.SIGSTOP:
                victim.daemon.wait(timeout=PATIENCE)
            if victim.daemon.poll() is not None:
                victim.start()
        step(f"killed, paused or stopped {KILLS} times")
        until("all is followed", lambda: None not in one.holders(), TAKEOVER)
        step(f"the feed is in order: {reader.check(one)} entries")
        three.stop()
        one.stop()

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
        until("in step after restarts of the server", are_in_step, 2 * PATIENCE)
        step("its standby was promoted")

        until("in sync", two.is_in_sync)
        assert "in sync" in two.run("audit")
        two.run("sync", "--dry-run")
        assert "state-on-server" in two.run("backup", str(WORK / "copy.db"), expected=1)
        two.run("check", "--environment")

        theses = sources[-1]
        former, _ = two.changes()
        server("DUMP")
        (theses.folder / "later.txt").write_text("later")
        theses.write(5, "changed later")
        until("in step after the dump", are_in_step)
        two.stop()
        server("RESTORE")
        assert former not in two.run("store", "new-feed")
        two.run("audit", "--repair")
        two.start()
        until("in step after the restored database", are_in_step)
        until("in sync", two.is_in_sync)
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
        (theses.folder / "new.txt").write_text("new")
        until("the new file", are_in_step)
        until("its entry", lambda: len(two.changes()[1]) > len(changes))
        again = two.changes()
        assert again[0] == feed and {**again[1], **changes} == again[1], "the feed goes on"
        assert "in sync" in two.run("audit")
        step("the state was moved to SQLite")
        two.stop()
    except BaseException:
        for node in nodes:
            if node.daemon:
                sys.stderr.write(f"--- {node.name}\n{node.log()[-6000:]}\n")
        raise
    finally:
        stopped.set()
        if reader:
            reader.stopped.set()
        for process in [source.publishing for source in sources] + [node.daemon for node in nodes]:
            if process and process.poll() is None:
                process.kill()


main()

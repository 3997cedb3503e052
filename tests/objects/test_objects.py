"""A mirror in an object store: test_objects.py RESYNCD FOLDER"""

import collections
import hashlib
import http.client
import http.server
import json
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import boto3
from moto.server import ThreadedMotoServer

sys.path.append(str(Path(__file__).parent.parent))
from running import PATIENCE, answers, free_port, get, until  # noqa: E402

RESYNCD, WORK = sys.argv[1], Path(sys.argv[2])
BUCKET, PREFIX = "mirrors", "a/b"


class Layer(http.server.BaseHTTPRequestHandler):
    """Passes requests on to the store; a share of them fails in one of the ways of a service."""

    protocol_version = "HTTP/1.1"
    behind = 0
    share = 0.0
    failed = 0
    passed = collections.Counter()
    is_shut = False
    chance = random.Random(7)

    def log_message(self, *_):
        pass

    def answer(self):
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        if Layer.is_shut:
            return self.send(503, {}, b"")
        way = Layer.chance.randrange(4) if Layer.chance.random() < Layer.share else None
        Layer.failed += way is not None
        if way == 0:
            return self.send(500, {}, b"<Error><Code>InternalError</Code></Error>")
        if way == 1:
            return self.send(503, {}, b"<Error><Code>SlowDown</Code></Error>")
        if way == 2:
            # Neither is what was asked for done, nor is there an answer.
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        Layer.passed[self.command, self.path.split("/")[-1].split("?")[0]] += f"/{PREFIX}/" in self.path
        behind = http.client.HTTPConnection("127.0.0.1", Layer.behind)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        behind.request(self.command, self.path, body, headers)
        answer = behind.getresponse()
        found = answer.read()
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in ("connection", "transfer-encoding")}
        if way == 3 and found:
            # Half a body, of what was done.
            headers["Content-Length"] = str(len(found))
            self.close_connection = True
            self.send(answer.status, headers, found[: len(found) // 2])
            return self.connection.shutdown(socket.SHUT_RDWR)
        self.send(answer.status, headers, found)

    def send(self, status, headers, body):
        self.send_response_only(status)
        if not any(name.lower() == "content-length" for name in headers):
            headers["Content-Length"] = str(len(body))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


def step(text):
    print(f"objects: {text}", flush=True)


def resyncd(*arguments, expected=(0,)):
    command = [RESYNCD, *arguments, "--config", str(WORK / "config.toml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode in expected, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def main():
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    Layer.behind = store.get_host_and_port()[1]
    layer = Server(("127.0.0.1", 0), Layer)
    threading.Thread(target=layer.serve_forever, daemon=True).start()
    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{Layer.behind}",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=BUCKET)

    source = WORK / "theses"
    source.mkdir()
    for number in range(300):
        (source / f"{number}.txt").write_text(f"thesis {number}")
    (source / "long.bin").write_bytes(random.Random(1).randbytes(70 << 20))
    ports = {name: free_port() for name in ("source", "status", "publish")}
    origin = f"127.0.0.1:{ports['source']}"
    publishing = subprocess.Popen(
        [RESYNCD, "publish", str(source), "--listen", origin, "--state", str(WORK / "published")],
        stdout=subprocess.DEVNULL,
        stderr=(WORK / "publish.log").open("w"),
    )
    (WORK / "secret").write_text("secret\n")
    (WORK / "secret").chmod(0o600)
    (WORK / "config.toml").write_text(f"""
state_dir = "state"
http = {{ allow_private_addresses = true }}
status = {{ listen = "127.0.0.1:{ports['status']}" }}

[objects]
endpoint_url = "http://127.0.0.1:{layer.server_address[1]}"
region = "us-east-1"
access_key_id = "key"
secret_access_key_file = "secret"

[publish]
listen = "127.0.0.1:{ports['publish']}"
public_url = "http://127.0.0.1:{ports['publish']}/"

[[source]]
name = "theses"
url = "http://{origin}/"
mirror = "s3://{BUCKET}/{PREFIX}"
versions = "s3://{BUCKET}/versions"
notifications = false
poll_interval = "1s"
publish = true

[[source.hook]]
command = ["/bin/sh", "-c", "cp -R \\"$RESYNCD_MIRROR/.\\" '{WORK}/copies'"]
files = true
""")
    daemons = []
    temporary, copies = WORK / "temporary", WORK / "copies"
    temporary.mkdir()
    copies.mkdir()

    def keys(prefix=f"{PREFIX}/{origin}/theses/"):
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        found = (entry["Key"] for page in pages for entry in page.get("Contents", []))
        return {key.removeprefix(prefix) for key in found}

    def body(name):
        return client.get_object(Bucket=BUCKET, Key=f"{PREFIX}/{origin}/theses/{name}")["Body"].read()

    def is_in_step():
        names = {path.name for path in source.iterdir()}
        return keys() == names and all(body(name) == (source / name).read_bytes() for name in names)

    def start():
        daemon = subprocess.Popen(
            [RESYNCD, "run", "--config", str(WORK / "config.toml")],
            stderr=(WORK / "daemon.log").open("a"),
            env={**os.environ, "TMPDIR": str(temporary)},
        )
        daemons.append(daemon)
        return daemon

    def status():
        found = answers(f"http://127.0.0.1:{ports['status']}/status")
        return json.loads(found)["sources"][0] if found else {}

    try:
        until("the folder is published", lambda: answers(f"http://{origin}/sitemap.xml"))
        step("what the daemon needs is tried")
        assert "answers" in resyncd("check", "--environment")

        step("daemons are killed while they upload, and the store fails")
        Layer.share = 0.2
        begun, uploads = set(), WORK / "state/objects/theses/.resyncd/uploads"
        for _ in range(5):
            daemon = start()
            time.sleep(Layer.chance.uniform(0.2, 1.5))
            daemon.send_signal(signal.SIGKILL)
            daemon.wait()
            begun |= {note.read_text().split("\n")[0] for note in uploads.glob("*")}
        daemon = start()
        until("the first copy", is_in_step)
        # Another daemon has removed what one that was killed has uploaded without an end, unless the answer with its id was lost.
        left = client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        assert not begun & {upload["UploadId"] for upload in left}, (begun, left)
        found = client.head_object(Bucket=BUCKET, Key=f"{PREFIX}/{origin}/theses/7.txt")
        assert found["ContentType"] == "text/plain", found
        digest = hashlib.sha256(b"thesis 7").hexdigest()
        assert found["Metadata"]["digest"] == f"sha-256:{digest}", found

        step("changes, deletions and versions; a hook reads the files")
        (source / "7.txt").write_text("a better thesis")
        (source / "8.txt").unlink()
        (source / "9.txt").rename(source / "other.txt")
        until("the changes", is_in_step)
        versions = f"versions/{origin}/theses/"
        copied = copies / origin / "theses"
        until("copies for the hook", lambda: (copied / "other.txt").exists() and (copied / "7.txt").read_text() == "a better thesis")
        until("no copies after the hook", lambda: not [path for path in temporary.iterdir() if (path / origin).exists()])
        until("a version", lambda: any(name.startswith("7.txt/") for name in keys(versions)))
        assert Layer.failed > 20, Layer.failed
        Layer.share = 0.0

        step("files are served from the store")
        url = f"http://127.0.0.1:{ports['publish']}/theses/{origin}/theses"
        assert get(f"{url}/7.txt") == b"a better thesis"
        assert get(f"{url}/long.bin") == (source / "long.bin").read_bytes()
        part = urllib.request.Request(f"{url}/long.bin", headers={"Range": "bytes=5000000-5000009"})
        assert get(part) == (source / "long.bin").read_bytes()[5000000:5000010]
        uri = f"http://{origin}/theses/7.txt"
        resource = json.loads(get(f"http://127.0.0.1:{ports['status']}/resource?uri={uri}"))
        assert resource["url"] == f"s3://{BUCKET}/{PREFIX}/{origin}/theses/7.txt", resource
        assert b"a better thesis" in get(f"http://127.0.0.1:{ports['status']}/page/file?uri={uri}")

        step("a store that is away waits for a person, and the daemon goes on by itself")
        Layer.is_shut = True
        (source / "10.txt").write_text("meanwhile")
        until("attention", lambda: any(it["code"] == "mirror-unusable" for it in status().get("attention", [])))
        Layer.is_shut = False
        until("the change", is_in_step)
        until("no attention", lambda: status().get("attention") == [])
        daemon.terminate()
        assert daemon.wait(60) == 0

        step("an audit finds what somebody has done, and repairs it")
        assert "in sync" in resyncd("audit")
        client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/{origin}/theses/11.txt", Body=b"thesis 12")
        client.delete_object(Bucket=BUCKET, Key=f"{PREFIX}/{origin}/theses/12.txt")
        client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/{origin}/theses/more.txt", Body=b"more")
        found = resyncd("audit", expected=(1,))
        assert "1 missing, 1 altered, 1 extra" in found, found
        resyncd("audit", "--repair", "--delete-extra")
        assert is_in_step()

        step("after the database was lost no object is stored again, and none fetched for its digest")
        for file in (WORK / "state").glob("resyncd.db*"):
            file.unlink()
        Layer.passed.clear()
        assert "in-sync" in resyncd("sync")
        asked = {name for (command, name), number in Layer.passed.items() if command == "HEAD" and number}
        stored = [name for (command, name), number in Layer.passed.items() if command == "PUT" and number]
        # Short ones are fetched to be compared with their versions.
        assert keys() <= asked and not stored and not Layer.passed["GET", "long.bin"], Layer.passed

        step("a dry run writes nothing, and another mirror is not taken for this one")
        (source / "13.txt").write_text("new")
        time.sleep(3)
        assert "would update" in resyncd("sync", "--dry-run", expected=(0, 1))
        assert body("13.txt") == b"thesis 13"
        client.delete_object(Bucket=BUCKET, Key=f"{PREFIX}/.resyncd/id")
        assert "mirror-missing" in resyncd("sync", expected=(1,))

        step("a Source that is not followed any more is forgotten with its files")
        resyncd("audit", "--repair", "--new-mirror", "theses")
        (WORK / "other").mkdir()
        config = (WORK / "config.toml").read_text().split("[[source]]")[0]
        folder = f'[[publish.folder]]\nname = "other"\npath = "{WORK}/other"\n'
        (WORK / "config.toml").write_text(config + folder)
        daemon = start()
        until("the daemon answers", lambda: answers(f"http://127.0.0.1:{ports['status']}/healthz"))
        forgotten = resyncd("forget", "theses", "--delete-files")
        assert keys() == set() and keys(versions), forgotten
        step("done")
    finally:
        for process in [publishing, *daemons]:
            process.kill()
            process.wait()
        layer.shutdown()
        store.stop()


if __name__ == "__main__":
    os.chdir(WORK)
    main()

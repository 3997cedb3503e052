"""Waits until the status of the daemon satisfies all conditions, at most 60 seconds: `wait_for.py STATUS_URL CONDITION…`.

All conditions must be true at the same time:
  ready                    the daemon answers /readyz with 200
  in-sync                  there are sets, all of them are in sync, and nothing is pending
  active=KIND              a channel of that kind is active
  unsubscribed=KIND        every channel of that kind is unsubscribed
  applied=CHANGE:URI       the change feed has that change of that resource
  patched=NUMBER           so many changes were applied by a patch
  origin=ORIGIN:URI        the change feed has a change of that resource with that origin
On failure it prints the last status.
"""

import json
import sys
import time
import urllib.error
import urllib.request

TIMEOUT = 60.0
INTERVAL = 0.1


def get(url):
    with urllib.request.urlopen(url, timeout=5) as response:
        return response.read().decode()


class Daemon:
    """A snapshot of status and change feed."""

    def __init__(self, url):
        get(f"{url}/readyz")
        self.status = json.loads(get(f"{url}/status"))
        feed = get(f"{url}/changes?since=0&limit=10000")
        self.changes = [json.loads(line) for line in feed.splitlines() if line]
        self.sets = [each for source in self.status["sources"] for each in source["sets"]]

    def channels(self, kind):
        return [
            channel["state"]
            for each in self.sets
            for channel in each["channels"]
            if channel["kind"] == kind
        ]

    def is_in_sync(self):
        return bool(self.sets) and all(
            each["state"] == "in-sync" and each["pending"] == 0 for each in self.sets
        )

    def satisfies(self, condition):
        name, _, value = condition.partition("=")
        if name == "ready":
            return True
        if name == "in-sync":
            return self.is_in_sync()
        if name == "active":
            return "active" in self.channels(value)
        if name == "unsubscribed":
            return set(self.channels(value)) <= {"unsubscribed"}
        if name == "patched":
            return sum(each["patched"] for each in self.sets) == int(value)
        expected, _, uri = value.partition(":")
        field = {"applied": "change", "origin": "origin"}[name]
        return any(each["uri"] == uri and each[field] == expected for each in self.changes)


def main(url, conditions):
    url = url.rstrip("/")
    deadline = time.monotonic() + TIMEOUT
    missing, daemon = conditions, None
    while time.monotonic() < deadline:
        try:
            daemon = Daemon(url)
            missing = [each for each in conditions if not daemon.satisfies(each)]
            if not missing:
                return 0
        except (urllib.error.URLError, OSError) as error:
            missing = [f"response ({error})"]
        time.sleep(INTERVAL)
    print(f"waited {TIMEOUT:.0f} s; not satisfied: {' '.join(missing)}", file=sys.stderr)
    if daemon:
        print(json.dumps(daemon.status, indent=2), file=sys.stderr)
        for change in daemon.changes:
            print(json.dumps(change), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

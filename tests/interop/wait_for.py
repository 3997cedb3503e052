"""Waits until the running daemon says what is wanted: `wait_for.py STATUS_URL CONDITION…`, at most 60 seconds.

Conditions, all of which must hold at once:
  ready                    the daemon answers /readyz with 200
  in-sync                  there are sets, all of them are in sync, and nothing is pending
  active=KIND              a channel of that kind is active
  unsubscribed=KIND        every channel of that kind is unsubscribed
  applied=CHANGE:URI       the change feed tells that change of that resource
  origin=ORIGIN:URI        the change feed tells a change of that resource, learnt that way
On failure it prints what the status was last.
"""

import json
import sys
import time
import urllib.error
import urllib.request

PATIENCE = 60.0
PAUSE = 0.1


def get(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


class Daemon:
    """What the daemon says at one moment."""

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

    def holds(self, condition):
        name, _, wanted = condition.partition("=")
        if name == "ready":
            return True
        if name == "in-sync":
            return self.is_in_sync()
        if name == "active":
            return "active" in self.channels(wanted)
        if name == "unsubscribed":
            return set(self.channels(wanted)) <= {"unsubscribed"}
        value, _, uri = wanted.partition(":")
        field = {"applied": "change", "origin": "origin"}[name]
        return any(each["uri"] == uri and each[field] == value for each in self.changes)


def main(url, conditions):
    url = url.rstrip("/")
    deadline = time.monotonic() + PATIENCE
    missing, daemon = conditions, None
    while time.monotonic() < deadline:
        try:
            daemon = Daemon(url)
            missing = [each for each in conditions if not daemon.holds(each)]
            if not missing:
                return 0
        except (urllib.error.URLError, OSError) as error:
            missing = [f"an answer ({error})"]
        time.sleep(PAUSE)
    print(f"waited {PATIENCE:.0f} s in vain for: {' '.join(missing)}", file=sys.stderr)
    if daemon:
        print(json.dumps(daemon.status, indent=2), file=sys.stderr)
        for change in daemon.changes:
            print(json.dumps(change), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

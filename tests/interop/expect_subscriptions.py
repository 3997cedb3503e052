"""Waits until the hub has NUMBER subscriptions, at most 20 seconds: `expect_subscriptions.py DATABASE NUMBER`."""

import sqlite3
import sys
import time

TIMEOUT = 20.0
INTERVAL = 0.05


def count(database):
    (found,) = sqlite3.connect(database).execute("select count(*) from hub").fetchone()
    return found


def main(database, wanted):
    deadline = time.monotonic() + TIMEOUT
    while count(database) != wanted:
        if time.monotonic() > deadline:
            return f"the hub has {count(database)} subscriptions, not {wanted}"
        time.sleep(INTERVAL)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))

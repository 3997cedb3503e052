"""Waits until the hub has that many subscriptions: `expect_subscriptions.py DATABASE NUMBER`, at most 20 seconds."""

import sqlite3
import sys
import time

PATIENCE = 20.0
PAUSE = 0.05


def count(database):
    (found,) = sqlite3.connect(database).execute("select count(*) from hub").fetchone()
    return found


def main(database, wanted):
    deadline = time.monotonic() + PATIENCE
    while count(database) != wanted:
        if time.monotonic() > deadline:
            return f"the hub has {count(database)} subscriptions, not {wanted}"
        time.sleep(PAUSE)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))

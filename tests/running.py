"""What the tests of running programs share: ports, waiting, requests."""

import socket
import time
import urllib.request

PATIENCE = 300


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(what, condition, patience=PATIENCE):
    """Waits for a condition, and returns what it is then."""
    end = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {patience} s: {what}"
        time.sleep(0.2)
    return found


def get(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read()


def answers(url):
    """The answer; None: there is none, or an error."""
    try:
        return get(url)
    except OSError:
        return None

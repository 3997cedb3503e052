"""A WebSub hub made of flask-websub: `websub_hub.py DATABASE before|after`.

It verifies intent before or after it answers a subscription request. On `hub.mode=publish` it fetches the topic itself.
It prints `hub URL` when it listens, and then its log.
"""

import logging
import sys
import threading

from celery import Celery
from flask import Flask
from flask_websub.hub import Hub, SQLite3HubStorage
from werkzeug.serving import make_server

SETTINGS = {
    "PUBLISH_SUPPORTED": True,
    "HUB_MIN_LEASE_SECONDS": 60,
    "SIGNATURE_ALGORITHM": "sha256",
    "BACKOFF_BASE": 0.2,
    "MAX_ATTEMPTS": 3,
}


def start_worker(celery):
    """Executes the tasks in threads of this process; the broker is in memory."""
    worker = celery.Worker(pool="threads", concurrency=4, loglevel="WARNING")
    threading.Thread(target=worker.start, daemon=True).start()


def main(database, verifies):
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    app = Flask(__name__)
    app.config.update(SETTINGS)
    celery = Celery("hub", broker="memory://", backend="cache+memory://")
    celery.conf.task_always_eager = verifies == "before"
    hub = Hub(SQLite3HubStorage(database), celery, **SETTINGS)
    app.register_blueprint(hub.build_blueprint(url_prefix="/hub"))
    if verifies == "after":
        start_worker(celery)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    print(f"hub http://127.0.0.1:{server.server_port}/hub", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])

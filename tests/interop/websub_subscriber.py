"""A subscriber made of flask-websub: `websub_subscriber.py DATABASE TOPIC`.

It finds the hub by the headers of the topic, subscribes, and prints `subscribed` and then the URIs that notifications state, `change URI`.
"""

import logging
import sys
import threading

from flask import Flask
from flask_websub.subscriber import (
    SQLite3SubscriberStorage,
    SQLite3TempSubscriberStorage,
    Subscriber,
    discover,
)
from lxml import etree
from werkzeug.serving import make_server

SITEMAP = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
TERMS = "{http://www.openarchives.org/rs/terms/}"


def show(_topic, _callback, body):
    for url in etree.fromstring(body).iter(SITEMAP + "url"):
        change = url.find(TERMS + "md").get("change")
        print(change, url.findtext(SITEMAP + "loc"), flush=True)


def main(database, topic):
    logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
    app = Flask(__name__)
    storage = SQLite3SubscriberStorage(database)
    subscriber = Subscriber(storage, SQLite3TempSubscriberStorage(database))
    app.register_blueprint(subscriber.build_blueprint(url_prefix="/callbacks"))
    subscriber.add_listener(show)
    subscriber.add_error_handler(lambda *error: print("error", *error, flush=True))
    subscriber.add_success_handler(lambda *_: print("subscribed", flush=True))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    app.config["SERVER_NAME"] = f"127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever).start()
    with app.app_context():
        # It may not know of the secret when the hub asks it to confirm over http.
        subscriber.subscribe(**discover(topic))


if __name__ == "__main__":
    main(*sys.argv[1:])

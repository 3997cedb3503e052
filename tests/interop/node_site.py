"""A Source of version 0.1 that publishes its changes at a node, by slixmpp: `node_site.py XMPP_PORT PASSWORD`.

The XMPP server is at that port of 127.0.0.1; the user `publisher@localhost` makes the node `changes` of `pubsub.localhost`. The Sitemap,
which names it, and the resources are served over HTTP; `source URL` is printed when both are ready. `GET /control/update/NAME/TEXT` and
`GET /control/delete/NAME` change a resource and publish a Change Set; `GET /control/subscriptions` states who has subscribed. The Sitemap
stays as it is: only the node states a change.
"""

import asyncio
import http.server
import itertools
import sys
import threading
import xml.etree.ElementTree as ET

import slixmpp

SERVICE, NODE = "pubsub.localhost", "changes"
NAMESPACES = (
    'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"'
    ' xmlns:xhtml="http://www.w3.org/1999/xhtml"'
)


class Source:
    def __init__(self):
        self.resources = {"a.txt": "first", "b.txt": "first", "c.txt": "first"}
        self.base = None
        self.numbers = itertools.count(1)

    def sitemap(self):
        """As example 5.4 of the draft."""
        entries = "".join(
            f"<url><loc>{self.base}/data/{name}</loc><lastmod>2012-08-08T08:00:00Z</lastmod></url>"
            for name in ("a.txt", "b.txt", "c.txt")
        )
        return (
            f'<urlset {NAMESPACES}><xhtml:meta name="DCTERMS.modified" content="2012-08-08T16:30:00Z"/>'
            f'<xhtml:link href="xmpp:{SERVICE}" rs:protocol="http://xmpp.org/extensions/xep-0060.html"'
            f' rs:pubsubnode="{NODE}"/>{entries}</urlset>'
        )

    def change(self, kind, name, *text):
        """Changes a resource, and returns the identifier and the document that state it."""
        loc = f"<loc>{self.base}/data/{name}</loc>"
        number = next(self.numbers)
        time = f"2012-08-09T08:{number:02}:00Z"
        if kind == "delete":
            del self.resources[name]
            entry = f"{loc}<expires>{time}</expires>"
        else:
            change = "updated" if name in self.resources else "created"
            self.resources[name] = text[0]
            entry = f'{loc}<lastmod rs:type="{change}">{time}</lastmod>'
        return str(number), ET.fromstring(f'<urlset rs:type="changeset" {NAMESPACES}><url>{entry}</url></urlset>')


class Publisher(slixmpp.ClientXMPP):
    def __init__(self, password):
        # There is no TLS, on loopback.
        plugins = {"feature_mechanisms": {"unencrypted_scram": True}}
        super().__init__("publisher@localhost", password, plugin_config=plugins)
        self.enable_direct_tls = self.enable_starttls = False
        self.enable_plaintext = True
        self.register_plugin("xep_0060")
        self.pubsub = self.plugin["xep_0060"]

    async def begin(self, port):
        begun = asyncio.get_running_loop().create_future()
        self.add_event_handler("session_start", lambda _: begun.done() or begun.set_result(None))
        self.connect("127.0.0.1", port)
        await asyncio.wait_for(begun, 60)
        form = self.plugin["xep_0004"].make_form("submit")
        form.add_field("FORM_TYPE", "hidden", value="http://jabber.org/protocol/pubsub#node_config")
        form.add_field("pubsub#persist_items", value="1")
        form.add_field("pubsub#max_items", value="20")
        await self.pubsub.create_node(SERVICE, NODE, config=form)

    async def publish(self, number, document):
        await self.pubsub.publish(SERVICE, NODE, id=number, payload=document)

    async def subscriptions(self):
        found = await self.pubsub.get_node_subscriptions(SERVICE, NODE)
        return " ".join(sorted(str(one["jid"]) for one in found["pubsub_owner"]["subscriptions"]))


async def main():
    port, password = int(sys.argv[1]), sys.argv[2]
    source, publisher = Source(), Publisher(password)
    loop = asyncio.get_running_loop()
    await publisher.begin(port)

    def wait(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(30)

    class Documents(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            path = self.path
            if path.startswith("/control/subscriptions"):
                answer = wait(publisher.subscriptions())
            elif path.startswith("/control/"):
                number, document = source.change(*path.removeprefix("/control/").split("/"))
                wait(publisher.publish(number, document))
                answer = "published"
            elif path == "/sitemap.xml":
                answer = source.sitemap()
            else:
                answer = source.resources.get(path.removeprefix("/data/"))
            self.send_response(404 if answer is None else 200)
            body = (answer or "").encode()
            self.send_header("Content-Type", "text/xml" if path.endswith(".xml") else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Documents)
    source.base = "http://127.0.0.1:%d" % server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"source {source.base}/", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())

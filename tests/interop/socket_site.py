"""A Source whose channel is a WebSocket, made of Tornado or of websockets: `socket_site.py tornado|websockets`.

Documents, resources and the channel are at one address. The notifications are made by resync, as in example 6.1 of ResourceSync
Notification 0.8, and sent as text by the one and as bytes by the other. It prints `source URL` when it listens. `GET
/control/update/NAME/TEXT` and `GET /control/delete/NAME` change a resource and notify; `GET /control/hangup` ends every connection.
"""

import asyncio
import http
import sys

import tornado.web
import tornado.websocket
import websockets.asyncio.server
from resync import ChangeList, Resource

CHANNEL = "/channels/dataset1/change_notification_channel"
NAMESPACES = (
    'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"'
)


class Source:
    def __init__(self):
        self.resources = {"a.txt": "first", "b.txt": "first", "c.txt": "first"}
        self.day = 1
        self.base = None

    def document(self, capability, entries):
        entries = "".join(
            f"<url><loc>{loc}</loc>"
            + (f'<rs:md capability="{kind}"/>' if kind else "<lastmod>2024-01-01T00:00:00Z</lastmod>")
            + "</url>"
            for loc, kind in entries
        )
        return f'<urlset {NAMESPACES}><rs:md capability="{capability}" at="2024-01-01T00:00:00Z"/>{entries}</urlset>'

    def get(self, path):
        """A document or a resource; None: there is no such thing."""
        base = self.base
        if path == "/.well-known/resourcesync":
            return self.document("description", [(f"{base}/caps.xml", "capabilitylist")])
        if path == "/caps.xml":
            channel = base.replace("http:", "ws:") + CHANNEL
            offers = [(f"{base}/list.xml", "resourcelist"), (channel, "change-notification")]
            return self.document("capabilitylist", offers)
        if path == "/list.xml":
            return self.document("resourcelist", [(f"{base}/data/{name}", None) for name in self.resources])
        return self.resources.get(path.removeprefix("/data/"))

    def control(self, path):
        """Changes a resource, and returns the notification."""
        kind, name, *text = path.removeprefix("/control/").split("/")
        is_known = name in self.resources
        if kind == "delete":
            del self.resources[name]
            change = "deleted"
        else:
            self.resources[name] = text[0]
            change = "updated" if is_known else "created"
        self.day += 1
        changes = ChangeList()
        uri, time = f"{self.base}/data/{name}", f"2024-02-{self.day:02}T00:00:00Z"
        changes.add(Resource(uri, change=change, lastmod=time))
        return changes.as_xml()


async def serve_with_tornado(source):
    class Channel(tornado.websocket.WebSocketHandler):
        destinations = set()

        def open(self):
            Channel.destinations.add(self)

        def on_close(self):
            Channel.destinations.discard(self)

    class Documents(tornado.web.RequestHandler):
        def get(self):
            path = self.request.path
            if path == "/control/hangup":
                for destination in list(Channel.destinations):
                    destination.close(1001, "going away")
                return
            if path.startswith("/control/"):
                message = source.control(path)
                for destination in Channel.destinations:
                    destination.write_message(message)
                return
            found = source.get(path)
            if found is None:
                raise tornado.web.HTTPError(404)
            self.finish(found)

    application = tornado.web.Application([(CHANNEL, Channel), (r".*", Documents)], websocket_ping_interval=1)
    server = application.listen(0, "127.0.0.1")
    sockets = list(server._sockets.values())
    announce(source, sockets[0].getsockname()[1])
    await asyncio.Event().wait()


async def serve_with_websockets(source):
    destinations = set()

    async def channel(connection):
        destinations.add(connection)
        try:
            await connection.wait_closed()
        finally:
            destinations.discard(connection)

    def answer(connection, request):
        if request.path == CHANNEL:
            return None
        if request.path == "/control/hangup":
            for destination in list(destinations):
                asyncio.ensure_future(destination.close(1001, "going away"))
            return connection.respond(http.HTTPStatus.OK, "")
        if request.path.startswith("/control/"):
            message = source.control(request.path).encode()
            websockets.asyncio.server.broadcast(destinations, message)
            return connection.respond(http.HTTPStatus.OK, "")
        found = source.get(request.path)
        if found is None:
            return connection.respond(http.HTTPStatus.NOT_FOUND, "")
        return connection.respond(http.HTTPStatus.OK, found)

    serving = websockets.asyncio.server.serve(
        channel, "127.0.0.1", 0, process_request=answer, ping_interval=1
    )
    async with serving as server:
        announce(source, server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()


def announce(source, port):
    source.base = f"http://127.0.0.1:{port}"
    print(f"source {source.base}/", flush=True)


if __name__ == "__main__":
    serve = {"tornado": serve_with_tornado, "websockets": serve_with_websockets}[sys.argv[1]]
    asyncio.run(serve(Source()))

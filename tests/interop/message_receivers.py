"""Receives messages to people: mails by `aiosmtpd`, and requests whose signature `standardwebhooks` verifies.

`message_receivers.py SECRET` prints where the two are, and a line for each message that is right:
  smtp SMTP_URL
  http HTTP_URL
  mail SUBJECT
  request TITLE
"""

import email
import email.policy
import http.server
import socket
import sys

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from standardwebhooks.webhooks import Webhook

USER, PASSWORD = b"resyncd", b"pass word"


def authenticate(_server, _session, _envelope, _mechanism, auth):
    return AuthResult(success=(auth.login, auth.password) == (USER, PASSWORD))


class Mails:
    async def handle_DATA(self, _server, _session, envelope):
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        assert envelope.rcpt_tos == ["admin@example.net", "other@example.net"], envelope.rcpt_tos
        assert mail["Auto-Submitted"] == "auto-generated" and mail["Date"] and mail["Message-ID"]
        assert mail.get_content().strip(), mail
        print("mail", mail["Subject"])
        return "250 OK"


class Requests(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        data = Webhook(sys.argv[1]).verify(body, dict(self.headers.items()))["data"]
        print("request", data["title"])
        self.send_response(204)
        self.end_headers()


with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
mails = Controller(
    Mails(),
    hostname="127.0.0.1",
    port=port,
    authenticator=authenticate,
    auth_required=True,
    auth_require_tls=False,
)
mails.start()
print(f"smtp smtp://resyncd:pass%20word@127.0.0.1:{port}")
receiver = http.server.HTTPServer(("127.0.0.1", 0), Requests)
print(f"http http://127.0.0.1:{receiver.server_port}/messages")
receiver.serve_forever()

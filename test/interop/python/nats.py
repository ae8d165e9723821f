"""The part of the NATS protocol that a service needs, with nothing but the standard library.

One connection, one thread. A program that wants more than one call at a time is started more than once.
"""

import json
import os
import socket
import uuid
from urllib.parse import urlsplit


class Message:
    def __init__(self, subject, reply, header, data):
        self.subject, self.reply, self.data = subject, reply, data
        first, *lines = header.decode().split("\r\n") if header else [""]
        self.status = int((first.split(" ") + ["", ""])[1] or 0)
        self.headers = dict(line.split(":", 1) for line in lines if ":" in line)


class Connection:
    """Raises ConnectionError when the connection is lost, PermissionError when the server refuses something."""

    def __init__(self, url, user="", password="", inbox_prefix="_INBOX", name=""):
        address = urlsplit(url if "//" in url else "//" + url)
        self.socket = socket.create_connection((address.hostname, address.port or 4222))
        self.lines = self.socket.makefile("rb")
        self.inbox = f"{inbox_prefix}.{uuid.uuid4().hex}"
        self.requests = 0
        options = {
            "verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1,
            "lang": "python", "version": "1", "name": name, "user": user, "pass": password,
        }
        self.line()  # INFO
        self.send(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\nSUB " + f"{self.inbox}.*".encode() + b" 1\r\n")

    def send(self, data):
        self.socket.sendall(data)

    def line(self):
        line = self.lines.readline()
        if not line:
            raise ConnectionError("the server closed the connection")
        return line.rstrip(b"\r\n")

    def next(self, timeout):
        """The next message on the inbox. Raises TimeoutError."""
        self.socket.settimeout(timeout)
        while True:
            operation, _, rest = self.line().partition(b" ")
            if operation == b"PING":
                self.send(b"PONG\r\n")
            elif operation == b"-ERR":
                text = rest.decode()
                raise (PermissionError if "Permissions" in text or "Authorization" in text else ConnectionError)(text)
            elif operation in (b"MSG", b"HMSG"):
                tokens = rest.decode().split(" ")
                total = int(tokens.pop())
                split = int(tokens.pop()) if operation == b"HMSG" else 0
                body = self.lines.read(total + 2)[:total]
                return Message(tokens[0], tokens[2] if len(tokens) > 2 else "", body[:split], body[split:])

    def publish(self, subject, data=b"", headers=None, reply=""):
        if not headers:
            self.send(f"PUB {subject} {reply} {len(data)}\r\n".encode() + data + b"\r\n")
            return
        head = ("NATS/1.0\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n").encode()
        self.send(f"HPUB {subject} {reply} {len(head)} {len(head) + len(data)}\r\n".encode() + head + data + b"\r\n")

    def request(self, subject, data=b"", headers=None, timeout=5.0):
        """Publishes and returns the next message that answers. Late answers to earlier requests are passed over."""
        self.requests += 1
        reply = f"{self.inbox}.{self.requests}"
        self.publish(subject, data, headers, reply)
        while True:
            message = self.next(timeout)
            # A delivery of a stream has the subject it was stored on, and is acknowledged where its reply says.
            if message.subject == reply or message.reply.startswith("$JS.ACK."):
                return message

    def fetch(self, stream, consumer, expires=30.0):
        """The next message of a pull consumer, or None when none came in time."""
        ask = {"batch": 1, "expires": int(expires * 1e9)}
        message = self.request(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", json.dumps(ask).encode(), timeout=expires + 5)
        if message.status == 503:
            raise ConnectionError(f"{stream} has no consumer {consumer}")
        return None if message.status else message

    def store(self, subject, data, headers):
        """Publishes to a stream and waits until it is stored. False: something is there already."""
        answer = json.loads(self.request(subject, data, headers).data or b'{"error": {"description": "no stream"}}')
        error = answer.get("error")
        if error and error.get("err_code") != 10071:
            raise ConnectionError(error["description"])
        return not error

    def acknowledge(self, message):
        self.publish(message.reply, b"+ACK")


def connect(**options):
    """A connection to NATS_URL as NATS_USER."""
    environment = os.environ
    return Connection(
        environment.get("NATS_URL", "nats://127.0.0.1:4222"), environment.get("NATS_USER", ""),
        environment.get("NATS_PASSWORD", ""), **options,
    )

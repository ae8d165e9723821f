"""A NATS connection over asyncio, with the standard library alone: publish, request, subscribe, headers, TLS, user and
password or token, reconnection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import re
import secrets
import ssl
from collections import deque
from typing import Any, AsyncIterator, Callable
from urllib.parse import unquote, urlsplit

from . import wire
from .errors import AgentdError, Unavailable
from .transport import Headers, Message

log = logging.getLogger("agentd.nats")

# A subscription holds that many messages that nobody has taken yet.
BUFFER = 1024
# A server that has not answered a ping for two of these is gone.
PING_EVERY = 10.0
CONNECT_TIMEOUT = 5.0
CLOSED = "the connection is closed"
# What the server says when trying again does not help.
REFUSED = re.compile("authoriz|authentic|permissions violation", re.IGNORECASE)


class Subscription:
    def __init__(self, connection: Connection, sid: int, subject: str):
        self._connection, self.sid, self.subject = connection, sid, subject
        self._waiting: deque[Message] = deque(maxlen=BUFFER)
        self._arrived = asyncio.Event()
        self._over: AgentdError | None = None
        self.missed = False

    def deliver(self, message: Message) -> None:
        self.missed = self.missed or len(self._waiting) == BUFFER
        self._waiting.append(message)
        self._arrived.set()

    def end(self, why: AgentdError) -> None:
        self._over = why
        self._arrived.set()

    async def next(self, timeout: float | None = None) -> Message:
        """The next message. Raises TimeoutError, Unavailable when no more come, and AgentdError: permission_denied where the server refused
        the subscription."""
        async with asyncio.timeout(timeout):
            while not self._waiting:
                if self._over:
                    raise self._over
                self._arrived.clear()
                await self._arrived.wait()
        return self._waiting.popleft()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.next()
        except Unavailable:
            raise StopAsyncIteration from None

    async def unsubscribe(self) -> None:
        await self._connection.unsubscribe(self)


class Connection:
    """Make one with open. All its methods belong to the event loop that it was opened in."""

    def __init__(self, servers: list[str], options: dict[str, Any], tls: ssl.SSLContext | None):
        self._servers, self._options, self._tls = servers, options, tls
        self.user: str = options.get("user", "")
        self._inbox = f"{options.pop('inbox_prefix')}.{secrets.token_hex(11)}"
        self._subscriptions: dict[int, Subscription] = {}
        # By the subject of the answer: that of the request, and who waits.
        self._replies: dict[str, tuple[str, asyncio.Future[Message]]] = {}
        self._numbers = 0
        self._reconnected: list[Callable[[], Any]] = []
        self._writer: asyncio.StreamWriter | None = None
        self._ready = asyncio.Event()
        self._pongs = 0
        self._max_payload = 2**20
        self._refused: AgentdError | None = None
        self._running: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    async def open(
        cls, url: str, *, user: str = "", password: str = "", token: str = "", ca: str = "", cert: str = "", key: str = "",
        root: str = "", inbox_prefix: str = "", name: str = "agentd-python", timeout: float = 10.0,
    ) -> Connection:
        """Connects to one of the servers in a comma-separated list. The first may have the login, user:password@ or token@, where the
        arguments have none. inbox_prefix is by default that of `agentd nats-config` for the user and the root, which is that of a
        Client, and _INBOX without a user. Raises Unavailable when none answers in time, AgentdError: permission_denied when the login
        is refused, config for what is no address."""
        servers = _checked(url)
        user, password, token = _login(servers[0], user, password, token)
        tls = None
        if ca or cert or any(urlsplit(s).scheme == "tls" for s in servers):
            tls = ssl.create_default_context(cafile=ca or None)
            if cert:
                tls.load_cert_chain(cert, key or None)
        inbox_prefix = inbox_prefix or (f"_INBOX_{wire.root_of(root)}_{user}" if user else "_INBOX")
        options = {
            "verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1, "lang": "python",
            "version": "0.1.0", "name": name, "inbox_prefix": inbox_prefix,
        }
        if user:
            options |= {"user": user, "pass": password}
        if token:
            options["auth_token"] = token
        connection = cls(servers, options, tls)
        connection._running = asyncio.create_task(connection._run())
        try:
            async with asyncio.timeout(timeout):
                await connection._ready.wait()
            if connection._refused:
                raise connection._refused
        except TimeoutError:
            await connection.close()
            at = ",".join(_host(server) for server in servers)
            raise connection._refused or Unavailable(f"no NATS server answers at {at}") from None
        except BaseException:
            await connection.close()
            raise
        return connection

    async def close(self) -> None:
        """Ends it for good: whatever waits for it, or is asked of it later, raises Unavailable."""
        self._closed = True
        if self._running:
            self._running.cancel()
            await asyncio.wait({self._running})
        for subscription in self._subscriptions.values():
            subscription.end(Unavailable(CLOSED, retryable=False))
        self._fail()
        self._ready.set()  # who waits for the connection is told too

    def new_inbox(self) -> str:
        """A subject to subscribe to, for answers to several requests or several to one."""
        self._numbers += 1
        return f"{self._inbox}.many.{self._numbers}"

    def on_reconnect(self, call: Callable[[], Any]) -> Callable[[], None]:
        """Calls back whenever the connection was lost and is there again, until the returned function is called."""
        self._reconnected.append(call)
        return lambda: self._reconnected.remove(call)

    async def publish(self, subject: str, data: bytes = b"", headers: Headers | None = None, reply: str = "") -> None:
        """Sends a message; nobody says that it arrived. Waits while the connection is lost. Raises AgentdError: too_large, and
        Unavailable when it is closed."""
        await self._ready.wait()
        self._check_open()
        if any(c in subject + reply for c in " \r\n\t") or not subject:
            raise ValueError(f"{subject!r} is not a subject")
        head = header_block(headers)
        size = checked_size(subject, head, data, self._max_payload)
        operation = f"HPUB {subject} {reply} {len(head)} {size}" if head else f"PUB {subject} {reply} {size}"
        await self._send(operation.encode() + b"\r\n" + head + data + b"\r\n")

    async def request(
        self, subject: str, data: bytes = b"", headers: Headers | None = None, timeout: float = 5.0
    ) -> Message:
        self._numbers += 1
        reply = f"{self._inbox}.{self._numbers}"
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._replies[reply] = subject, answer
        try:
            async with asyncio.timeout(timeout):
                await self.publish(subject, data, headers, reply)
                message = await answer
        except TimeoutError:
            raise unanswered(subject) from None
        finally:
            del self._replies[reply]
        if message.status == 503:
            raise Unavailable(f"nobody listens on {subject}")
        return message

    async def subscribe(self, subject: str) -> Subscription:
        """Messages on a subject; those on an inbox made by new_inbox come with the subject that they were published on."""
        self._check_open()
        self._numbers += 1
        subscription = Subscription(self, self._numbers, subject)
        self._subscriptions[subscription.sid] = subscription
        self._tell(f"SUB {subject} {subscription.sid}")
        return subscription

    async def unsubscribe(self, subscription: Subscription) -> None:
        if self._subscriptions.pop(subscription.sid, None):
            self._tell(f"UNSUB {subscription.sid}")
        subscription.end(Unavailable("the subscription has ended", retryable=False))

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(CLOSED, retryable=False)

    def _tell(self, operation: str) -> None:
        """Of a subscription; a server that is not there is told of all when it is."""
        if self._ready.is_set():
            self._write(operation.encode() + b"\r\n")

    def _write(self, data: bytes) -> None:
        """Sends without waiting for what was sent before. What a connection does not take that is lost just now is lost with it, which
        whoever reads from it notices."""
        if self._writer:
            with contextlib.suppress(OSError):
                self._writer.write(data)

    async def _send(self, data: bytes) -> None:
        """Sends, and waits while the server takes no more."""
        self._write(data)
        if self._writer:
            with contextlib.suppress(OSError):
                await self._writer.drain()

    async def _run(self) -> None:
        """Connects, and connects again for ever, unless the first login is refused."""
        first = True
        while True:
            for server in self._servers:
                try:
                    reader = await self._connect(server)
                except AgentdError as e:
                    self._refused = e
                    if first:
                        self._ready.set()
                        return
                except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError) as e:
                    log.debug("no connection to %s: %s", _host(server), e)
                else:
                    self._refused = None
                    log.info("connected to NATS at %s", _host(server))
                    if not first:
                        for call in list(self._reconnected):
                            call()
                    first = False
                    await self._serve(reader)
            await asyncio.sleep(random.uniform(0.1, 1.0))

    async def _connect(self, server: str) -> asyncio.StreamReader:
        address = urlsplit(server)
        host, port = address.hostname, address.port or 4222
        async with asyncio.timeout(CONNECT_TIMEOUT):
            reader, self._writer = await asyncio.open_connection(host, port, limit=2**20)
            try:
                info = self._informed((await reader.readuntil(b"\r\n"))[len("INFO "):])
                if self._tls or info.get("tls_required"):
                    await self._writer.start_tls(self._tls or ssl.create_default_context(), server_hostname=host)
                hello = b"CONNECT " + json.dumps(self._options).encode() + b"\r\n"
                hello += f"SUB {self._inbox}.* 0\r\n".encode()
                self._writer.write(hello + b"PING\r\n")
                while (line := await reader.readuntil(b"\r\n")) != b"PONG\r\n":
                    if line.startswith(b"-ERR"):
                        raise refusal(host, line[4:].decode(errors="replace").strip("' \r\n"))
                    if line.startswith(b"INFO "):
                        self._informed(line[len("INFO "):])
                # Now, with those that came meanwhile; and one that the server refuses is no login that it refuses.
                self._writer.write(b"".join(f"SUB {s.subject} {s.sid}\r\n".encode() for s in self._subscriptions.values()))
            except BaseException:
                self._writer.close()
                self._writer = None
                raise
        self._pongs = 0
        self._ready.set()
        return reader

    def _informed(self, text: bytes) -> dict[str, Any]:
        """What the server says of itself when a client comes, and again when it changes."""
        info = json.loads(text)
        self._max_payload = info.get("max_payload", self._max_payload)
        return info

    async def _serve(self, reader: asyncio.StreamReader) -> None:
        """Reads until the connection is lost."""
        pinging = asyncio.create_task(self._ping(reader))
        try:
            while True:
                await self._operation(reader, await reader.readuntil(b"\r\n"))
        except (asyncio.IncompleteReadError, ConnectionError):
            log.warning("the connection to NATS is lost: the server closed it")
        except (OSError, asyncio.LimitOverrunError, ValueError) as e:
            log.warning("the connection to NATS is lost: %s", e)
        finally:
            pinging.cancel()
            self._ready.clear()
            if self._writer:
                self._writer.close()
            self._writer = None
            self._fail()

    def _fail(self) -> None:
        """Tells whoever waits for an answer that none comes."""
        why = CLOSED if self._closed else "the connection was lost before the answer came"
        error = Unavailable(why, retryable=not self._closed)
        for _, answer in self._replies.values():
            if not answer.done():
                answer.set_exception(error)

    async def _ping(self, reader: asyncio.StreamReader) -> None:
        while True:
            await asyncio.sleep(PING_EVERY)
            if self._pongs >= 2 and self._writer:
                reader.set_exception(TimeoutError("the server does not answer"))
                self._writer.transport.abort()
                return
            self._pongs += 1
            self._write(b"PING\r\n")

    async def _operation(self, reader: asyncio.StreamReader, line: bytes) -> None:
        operation, _, rest = line.rstrip(b"\r\n").partition(b" ")
        match operation.upper():
            case b"MSG" | b"HMSG":
                await self._message(reader, operation.upper() == b"HMSG", rest.decode().split())
            case b"PING":
                self._write(b"PONG\r\n")
            case b"PONG":
                self._pongs = 0
            case b"INFO":
                self._informed(rest)
            case b"-ERR":
                self._error(rest.decode(errors="replace").strip("' "))

    async def _message(self, reader: asyncio.StreamReader, with_headers: bool, words: list[str]) -> None:
        total = int(words.pop())
        split = int(words.pop()) if with_headers else 0
        body = (await reader.readexactly(total + 2))[:total]
        subject, sid, reply = words[0], int(words[1]), words[2] if len(words) > 2 else ""
        headers, status = parse_headers(body[:split])
        message = Message(subject, body[split:], reply, headers, status)
        if sid == 0:
            _, answer = self._replies.get(subject, ("", None))
            if answer and not answer.done():
                answer.set_result(message)
        elif subscription := self._subscriptions.get(sid):
            subscription.deliver(message)

    def _error(self, text: str) -> None:
        """Of a permission the server says on which subject it is missing: whoever waits for an answer from there, or for messages, is told."""
        log.error("NATS says: %s", text)
        if not text.lower().startswith("permissions violation"):
            return
        for subject, answer in self._replies.values():
            if f'ublish to "{subject}"' in text and not answer.done():
                answer.set_exception(forbidden("publish on", subject))
        for subscription in self._subscriptions.values():
            if f'ubscription to "{subscription.subject}"' in text:
                subscription.end(forbidden("subscribe to", subscription.subject))


def forbidden(what: str, subject: str) -> AgentdError:
    return AgentdError("permission_denied", f"the NATS server does not let this user {what} {subject}")


def _checked(url: str) -> list[str]:
    """The servers of a comma-separated list. Raises AgentdError: config, without a word of the URL: what is wrong in it may be the login."""
    servers = [s if "//" in s else "nats://" + s for s in url.split(",")]
    for number, server in enumerate(servers, 1):
        try:
            address = urlsplit(server)
            whole = address.hostname and address.port != 0 and address.path in ("", "/") and not address.query and not address.fragment
        except ValueError:
            whole = False
        if not whole:
            raise AgentdError(
                "config", f"the address of NATS server {number} is not of the form nats://user:password@host:port; a user, a password and a token are"
                " percent-encoded: / is %2F, ? is %3F, # is %23"
            )
    return servers


def _login(server: str, user: str, password: str, token: str) -> tuple[str, str, str]:
    """User, password and token, from a server's URL where they are not given."""
    address = urlsplit(server)
    if user or token or not address.username:
        return user, password, token
    if address.password is None and not password:
        return "", "", unquote(address.username)
    return unquote(address.username), password or unquote(address.password or ""), ""


def refusal(host: str, text: str) -> Exception:
    """What a server says in place of letting a client in: trying again helps, unless it is about the login."""
    if REFUSED.search(text):
        return AgentdError("permission_denied", f"the NATS server at {host} refuses the login: {text}")
    return ConnectionError(text)


def unanswered(subject: str) -> Unavailable:
    return Unavailable(f"nobody has answered on {subject} in time; look at the workers and the server, and try again")


def _host(server: str) -> str:
    """A server's address, without the login."""
    return urlsplit(server).netloc.rpartition("@")[2]


def checked_size(subject: str, head: bytes, data: bytes, most: int) -> int:
    """How large a message is. Raises AgentdError: too_large, for which the server would end the connection and all that is done on it."""
    size = len(head) + len(data)
    if size > most:
        raise AgentdError("too_large", f"the message on {subject} has {size} bytes, and the server takes {most}")
    return size


def header_block(headers: Headers | None) -> bytes:
    if not headers:
        return b""
    lines = [f"{name}: {value}" for name, values in headers.items() for value in ([values] if isinstance(values, str) else values)]
    if any(c in line for line in lines for c in "\r\n"):
        raise ValueError("a header has a line break")
    return "\r\n".join(("NATS/1.0", *lines, "", "")).encode()


def parse_headers(block: bytes) -> tuple[dict[str, list[str]], int]:
    """The headers of a message, and the status of one that the server itself sent."""
    if not block:
        return {}, 0
    first, *lines = re.split(r"[\r\n]+", block.decode("utf-8", errors="replace"))
    words = first.split()
    headers: dict[str, list[str]] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers.setdefault(name.strip(), []).append(value.strip())
    return headers, int(words[1]) if len(words) > 1 and words[1].isdigit() else 0

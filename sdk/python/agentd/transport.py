"""What agentd needs of a NATS connection, and who provides it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Callable, Mapping, Protocol, Sequence


# Headers to send: each with a value, or with several.
Headers = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it was delivered, each of its headers with all its values. status is that of a server's own message, such as 408; 0 is
    none."""

    subject: str
    data: bytes
    reply: str = ""
    headers: dict[str, list[str]] = field(default_factory=dict)
    status: int = 0

    def header(self, name: str) -> str:
        """The first value of a header; "" where there is none."""
        return next(iter(self.headers.get(name, ())), "")


class Subscription(Protocol):
    """An iterator over messages. One that is too slow loses the oldest, and missed becomes true. next raises TimeoutError, and
    Unavailable that is not retryable when no more come, and AgentdError: permission_denied where the server refused it."""

    subject: str
    missed: bool

    def __aiter__(self) -> AsyncIterator[Message]: ...
    async def next(self, timeout: float | None = None) -> Message: ...
    async def unsubscribe(self) -> None: ...


class Transport(Protocol):
    """A connection that reconnects by itself and subscribes again. user is its login's name, "" without one. Once it is closed, its
    methods raise Unavailable that is not retryable."""

    user: str

    async def publish(self, subject: str, data: bytes = b"", headers: Headers | None = None, reply: str = "") -> None:
        """Raises AgentdError: too_large for more than the server takes, which is not sent."""
        ...

    async def request(
        self, subject: str, data: bytes = b"", headers: Headers | None = None, timeout: float = 5.0
    ) -> Message:
        """The answer. Raises as publish does, Unavailable when nobody listens or answers in time, and AgentdError: permission_denied."""
        ...

    async def subscribe(self, subject: str) -> Subscription: ...
    def new_inbox(self) -> str: ...
    def on_reconnect(self, call: Callable[[], Any]) -> Callable[[], None]: ...
    async def close(self) -> None: ...


async def connect(url: str = "", **options: Any) -> Transport:
    """Connects to NATS: by default to NATS_URL, as NATS_USER with NATS_PASSWORD, with the authorities in NATS_CA and the
    certificate in NATS_CERT and NATS_KEY.

    options are those of agentd.nats.Connection.open. Whoever needs nkeys, JWTs or WebSockets makes a client of nats-py and
    wraps it in agentd.nats_py.Adapter.
    """
    from .nats import Connection

    defaults = {
        "user": os.environ.get("NATS_USER", ""), "password": os.environ.get("NATS_PASSWORD", ""),
        "ca": os.environ.get("NATS_CA", ""), "cert": os.environ.get("NATS_CERT", ""), "key": os.environ.get("NATS_KEY", ""),
    }
    return await Connection.open(url or os.environ.get("NATS_URL", "nats://127.0.0.1:4222"), **(defaults | options))

"""agentd over a connection of nats-py (2.x), for what our own cannot: nkeys, JWTs, WebSockets.

Untested here: it is written against nats-py's documented API, and no test of agentd has that package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, AsyncIterator, Callable

from .errors import Unavailable
from .nats import CLOSED, checked_size, header_block, unanswered
from .transport import Message

if TYPE_CHECKING:
    from nats.aio.client import Client as NATS
    from nats.aio.subscription import Subscription as NATSSubscription


def _message(m: Any) -> Message:
    headers = dict(m.headers or {})
    status = headers.get("Status", "")
    return Message(m.subject, m.data, m.reply, headers, int(status) if status.isdigit() else 0)


class Subscription:
    def __init__(self, subscription: NATSSubscription, subject: str):
        self._subscription, self.subject, self.missed = subscription, subject, False

    async def next(self, timeout: float | None = None) -> Message:
        import nats.errors

        try:
            return _message(await self._subscription.next_msg(timeout=timeout))
        except nats.errors.TimeoutError:
            raise TimeoutError from None
        except (nats.errors.BadSubscriptionError, nats.errors.ConnectionClosedError):
            raise Unavailable(CLOSED, retryable=False) from None

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.next()
        except Unavailable:
            raise StopAsyncIteration from None

    async def unsubscribe(self) -> None:
        await self._subscription.unsubscribe()


class Adapter:
    """Wraps a client that is connected. user is the principal that the broker lets it be; "" is none.

    Give `nats.connect` a reconnected_cb that calls reconnected, so that who follows a run asks for what was missed.
    """

    def __init__(self, client: NATS, user: str = ""):
        self._client, self.user = client, user
        self._reconnected: list[Callable[[], Any]] = []

    async def reconnected(self) -> None:
        for call in list(self._reconnected):
            call()

    def on_reconnect(self, call: Callable[[], Any]) -> Callable[[], None]:
        self._reconnected.append(call)
        return lambda: self._reconnected.remove(call)

    def new_inbox(self) -> str:
        return self._client.new_inbox()

    async def publish(self, subject: str, data: bytes = b"", headers: dict[str, str] | None = None, reply: str = "") -> None:
        import nats.errors

        self._check_size(subject, data, headers)
        try:
            await self._client.publish(subject, data, reply=reply, headers=headers)
        except nats.errors.ConnectionClosedError:
            raise Unavailable(CLOSED, retryable=False) from None

    def _check_size(self, subject: str, data: bytes, headers: dict[str, str] | None) -> None:
        """nats-py does not count the headers, and the server does."""
        checked_size(subject, header_block(headers), data, self._client.max_payload)

    async def request(
        self, subject: str, data: bytes = b"", headers: dict[str, str] | None = None, timeout: float = 5.0
    ) -> Message:
        import nats.errors

        self._check_size(subject, data, headers)
        try:
            return _message(await self._client.request(subject, data, timeout=timeout, headers=headers))
        except nats.errors.NoRespondersError:
            raise Unavailable(f"nobody listens on {subject}") from None
        except nats.errors.TimeoutError:
            raise unanswered(subject) from None
        except nats.errors.ConnectionClosedError:
            raise Unavailable(CLOSED, retryable=False) from None

    async def subscribe(self, subject: str) -> Subscription:
        import nats.errors

        try:
            return Subscription(await self._client.subscribe(subject), subject)
        except nats.errors.ConnectionClosedError:
            raise Unavailable(CLOSED, retryable=False) from None

    async def close(self) -> None:
        await self._client.drain()

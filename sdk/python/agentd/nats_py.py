"""agentd over a connection of nats-py (2.x), for what our own cannot: nkeys, JWTs, WebSockets.

Untested with nats-py: it is written against its documented API, and no test of agentd has that package.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Coroutine

from .errors import AgentdError, Unavailable
from .nats import CLOSED, checked_size, forbidden, header_block, unanswered
from .transport import Headers, Message

if TYPE_CHECKING:
    from nats.aio.client import Client as NATS
    from nats.aio.subscription import Subscription as NATSSubscription


def _message(m: Any) -> Message:
    headers = {name: [value] for name, value in (m.headers or {}).items()}
    status = (m.headers or {}).get("Status", "")
    return Message(m.subject, m.data, m.reply, headers, int(status) if status.isdigit() else 0)


class _Refusal:
    """What the server may refuse, and its error when it does: it says so on the connection, and to nobody who waits."""

    def __init__(self, what: str, subject: str):
        self.what, self.subject = what, subject
        self._told: asyncio.Future[AgentdError] = asyncio.get_running_loop().create_future()

    def heard(self, text: str) -> None:
        """text is an error of the connection, in small letters."""
        if f'{self.what} to "{self.subject.lower()}"' in text and not self._told.done():
            self._told.set_result(forbidden({"publish": "publish on", "subscription": "subscribe to"}[self.what], self.subject))

    async def unless(self, awaited: Coroutine[Any, Any, Any]) -> Any:
        """What is awaited, unless it is refused first."""
        task = asyncio.create_task(awaited)
        try:
            await asyncio.wait({task, self._told}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self._told.result()
            return task.result()
        finally:
            task.cancel()


class Subscription:
    def __init__(self, subscription: NATSSubscription, refusal: _Refusal, forget: Callable[[_Refusal], None]):
        self._subscription, self._refusal, self._forget = subscription, refusal, forget
        self.subject, self.missed = refusal.subject, False

    async def next(self, timeout: float | None = None) -> Message:
        import nats.errors

        try:
            return _message(await self._refusal.unless(self._subscription.next_msg(timeout=timeout)))
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
        self._forget(self._refusal)
        await self._subscription.unsubscribe()


class Adapter:
    """Wraps a client that is connected. user is the principal that the broker lets it be; "" is none.

    Give `nats.connect` a reconnected_cb that calls reconnected, so that who follows a run asks for what was missed, and an error_cb that
    calls failed, so that who waits for what the server refuses is told so.
    """

    def __init__(self, client: NATS, user: str = ""):
        self._client, self.user = client, user
        self._reconnected: list[Callable[[], Any]] = []
        self._refusals: set[_Refusal] = set()

    async def reconnected(self) -> None:
        for call in list(self._reconnected):
            call()

    async def failed(self, error: Exception) -> None:
        text = str(error).lower()  # as nats-py has it, subjects too
        for refusal in list(self._refusals):
            refusal.heard(text)

    def on_reconnect(self, call: Callable[[], Any]) -> Callable[[], None]:
        self._reconnected.append(call)
        return lambda: self._reconnected.remove(call)

    def new_inbox(self) -> str:
        return self._client.new_inbox()

    async def publish(self, subject: str, data: bytes = b"", headers: Headers | None = None, reply: str = "") -> None:
        import nats.errors

        self._check_size(subject, data, headers)
        try:
            await self._client.publish(subject, data, reply=reply, headers=_single(headers))
        except nats.errors.ConnectionClosedError:
            raise Unavailable(CLOSED, retryable=False) from None

    def _check_size(self, subject: str, data: bytes, headers: Headers | None) -> None:
        """nats-py does not count the headers, and the server does."""
        checked_size(subject, header_block(headers), data, self._client.max_payload)

    async def request(
        self, subject: str, data: bytes = b"", headers: Headers | None = None, timeout: float = 5.0
    ) -> Message:
        import nats.errors

        self._check_size(subject, data, headers)
        refusal = self._refusable("publish", subject)
        try:
            return _message(await refusal.unless(self._client.request(subject, data, timeout=timeout, headers=_single(headers))))
        except nats.errors.NoRespondersError:
            raise Unavailable(f"nobody listens on {subject}") from None
        except nats.errors.TimeoutError:
            raise unanswered(subject) from None
        except nats.errors.ConnectionClosedError:
            raise Unavailable(CLOSED, retryable=False) from None
        finally:
            self._refusals.discard(refusal)

    async def subscribe(self, subject: str) -> Subscription:
        import nats.errors

        refusal = self._refusable("subscription", subject)
        try:
            return Subscription(await self._client.subscribe(subject), refusal, self._refusals.discard)
        except nats.errors.ConnectionClosedError:
            self._refusals.discard(refusal)
            raise Unavailable(CLOSED, retryable=False) from None

    def _refusable(self, what: str, subject: str) -> _Refusal:
        refusal = _Refusal(what, subject)
        self._refusals.add(refusal)
        return refusal

    async def close(self) -> None:
        await self._client.drain()


def _single(headers: Headers | None) -> dict[str, str] | None:
    """Headers as nats-py takes them: of several values it sends one."""
    return headers and {name: values if isinstance(values, str) else values[-1] for name, values in headers.items()}

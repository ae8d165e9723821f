"""Serve a contract: answer the calls that agents make."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import inspect
import itertools
import json
import logging
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Awaitable, Callable

from . import contract as contracts
from . import files, letters, wire
from .errors import AgentdError, ToolError, Unavailable
from .letters import WRONG_LAST_SEQUENCE
from .transport import Message, Transport, connect
from .trouble import Trouble, reason

log = logging.getLogger("agentd.service")

# A delivery lasts 14.3 s unless it is extended.
HEARTBEAT = 5.0
PULL = 30.0
# How long it takes where none came, so that it is soon known that they come again.
SHORT_PULL = 1.0
# How long a call may wait here for a slot before others are given it.
PATIENCE = 1.0
# How often an answer is tried to be stored when the service is to end.
TRIES_AT_THE_END = 4
# The server says with these codes that it has no such stream, or no such consumer.
MISSING = (10059, 10014)
# The wire has costs up to here.
MOST_UNITS = 9_223_372_036_854
# How many voided calls are remembered, so that one that is still to come is not begun.
REMEMBERED = 4096
# What others read of an error that is not for them to read.
INTERNAL = AgentdError("internal", "internal error")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an agent. key is the same whenever the call comes again, in whatever attempt: give each key one effect."""

    key: str
    id: str
    data: dict[str, Any]
    version: str
    agent: str
    run: str
    event: dict[str, Any]


Handler = Callable[[Call, Any], Awaitable[dict[str, Any]] | dict[str, Any]]


class Service:
    """Answers the calls of a contract: its JSON as in docs/wire.md, or the path of a JSON or YAML file with it.

    With the package jsonschema, calls and answers are checked against the contract here as well; agentd checks both anyway.
    slots is how many calls are handled at once. A handler whose call is voided is cancelled: at once with hear_voids, which
    needs the right to subscribe to agentd.void.<domain>.<type>.>, and else when this program happens to be given the void.
    units is what an answer costs, errors included, unless the handler says otherwise, as "$units" of what it returns: up to six decimal
    places count. root is the first token of every subject: by default AGENTD_ROOT, else agentd.
    """

    def __init__(
        self, contract: dict[str, Any] | str | Path, *, slots: int = 16, hear_voids: bool = True, units: float = 0, root: str = "",
    ):
        self.contract = contract if isinstance(contract, dict) else files.read(Path(contract))
        self.type: str = self.contract.get("type") or ""
        self.units = units
        self.domain: str = self.contract.get("domain") or ""
        self.slots, self.hear_voids, self.root = slots, hear_voids, wire.root_of(root)
        self._handlers: dict[str, Handler] = {}
        self._checks = contracts.Checks()

    def handle(self, version: str = "") -> Callable[[Handler], Handler]:
        """Decorates the handler of a version; without one, of every version that has none of its own.

        It takes the call and its data and returns the answer's data, with its type as "$type" where the version emits several; what it
        raises becomes the call's error. One that is not async holds up the others for as long as it takes.
        """
        if version and version not in self.contract["versions"]:
            raise ValueError(f"{self.type} has no version {version}: it has {', '.join(self.contract['versions'])}")
        if version in self._handlers:
            raise ValueError(f"{self.type} has a handler {f'of version {version}' if version else 'of all versions'} already")

        def register(handler: Handler) -> Handler:
            self._handlers[version] = handler
            return handler

        return register

    def run(self, url: str = "", **options: Any) -> None:
        """Serves until SIGTERM or SIGINT, and then until the calls in hand are answered. options are those of agentd.connect."""
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
        asyncio.run(self._main(url, options))

    async def _main(self, url: str, options: dict[str, Any]) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(number, stop.set)
        transport = await connect(url, **({"name": self.type, "root": self.root} | options))
        try:
            await self.serve(transport, stop)
        finally:
            await transport.close()

    async def serve(self, transport: Transport, stop: asyncio.Event | None = None) -> None:
        """Serves on a connection until stop is set, and then until the calls in hand are answered. Raises AgentdError: config for what
        cannot be served, and Unavailable when the connection is closed."""
        self._check_servable()
        if importlib.util.find_spec("jsonschema") is None:
            log.warning("calls and answers are not checked here: the package jsonschema is missing; pip install 'agentd[contracts]'")
        await _Serving(self, transport, stop or asyncio.Event()).run()

    def _check_servable(self) -> None:
        faults = contracts.faults(self.contract) + [
            {"path": f"{self.type} {version}", "expected": "a handler", "got": "none"}
            for version in self.contract.get("versions") or {} if not self._handler(version)
        ]
        if self.slots < 1:
            faults.append({"path": "slots", "expected": "at least 1", "got": str(self.slots)})
        if not _is_cost(self.units):
            faults.append({"path": "units", "expected": "0 or more", "got": repr(self.units)})
        if faults:
            raise AgentdError("config", f"the service {self.type} cannot be run", faults=faults)

    def _handler(self, version: str) -> Handler | None:
        return self._handlers.get(version) or self._handlers.get("")

    async def answer(self, call: Call) -> dict[str, Any]:
        """The type and data of the answer to a call, and its cost where the handler says one, as an event with these members alone. Raises
        AgentdError for what the caller may read."""
        definition, handler = self.contract["versions"].get(call.version), self._handler(call.version)
        if definition is None or handler is None:
            raise AgentdError("contract_missing", f"version {call.version} of {self.type} is not served here")
        if faults := self._checks.faults(f"{call.version} accepts", definition["accepts"], call.data):
            raise AgentdError("contract_violation", "the data does not fit the contract", faults=faults)
        returned = await _returned(handler, call)
        types = list(definition["emits"])
        data = dict(returned) if isinstance(returned, dict) else {}  # the handler may return the same dict again
        kind, units = data.pop("$type", types[0] if len(types) == 1 else None), data.pop("$units", 0)
        if not isinstance(returned, dict) or kind not in types:
            raise TypeError(f"the handler returned {type(returned).__name__}; want a dict, with $type one of {', '.join(types)}")
        if not _is_cost(units):
            raise TypeError(f"the handler's $units are {units!r}; want a number of 0 or more")
        if faults := self._checks.faults(f"{call.version} emits {kind}", definition["emits"][kind], data):
            raise TypeError(f"the handler's answer does not fit {kind}: {faults}")
        return {"type": kind, "data": data} | ({"executionunits": units} if units else {})


def _is_cost(units: Any) -> bool:
    return isinstance(units, (int, float)) and not isinstance(units, bool) and 0 <= units < MOST_UNITS


async def _returned(handler: Handler, call: Call) -> Any:
    """What a handler returns. Raises AgentdError for what the caller may read: ToolError, deadline_exceeded. A call that is due already is
    not begun."""
    left = wire.seconds_until(call.event.get("expirytime"))
    if left is not None and left <= 0:
        raise _overdue()
    try:
        async with asyncio.timeout(left) as due:
            returned = handler(call, call.data)
            return await returned if inspect.isawaitable(returned) else returned
    except ToolError:
        raise
    except AgentdError as e:
        raise RuntimeError("the handler raised what its caller may not read; raise ToolError with what it may") from e
    except TimeoutError as e:
        if due.expired():
            raise _overdue() from e
        raise


def _overdue() -> AgentdError:
    return AgentdError("deadline_exceeded", "the service took too long", retryable=True)


def _call_in(message: Message) -> dict[str, Any]:
    """The call in a delivery. Its subject and the event say the same: who may do what is decided by subjects. Raises AgentdError: invalid_event."""
    event, tokens = wire.decode(message.data), message.subject.split(".")
    if not wire.call_of(event["id"]) or event["id"] != tokens[-1]:
        raise AgentdError("invalid_event", "the event's id is not that of its subject")
    if tokens[-3:-1] != wire.run_key(event.get("subject") or "").split("."):
        raise AgentdError("invalid_event", "the event's run is not that of its subject")
    return event


def _kind(subject: str) -> str:
    return (subject.split(".", 2) + [""])[1]


class _Serving:
    """A service while it runs."""

    def __init__(self, service: Service, transport: Transport, stop: asyncio.Event):
        self.service, self.transport, self.stop = service, transport, stop
        # Of the domain and the type.
        self.tokens = f"{wire.domain_token(service.domain)}.{wire.token(service.type)}"
        self.active: dict[str, asyncio.Task[None]] = {}
        self.voided: set[asyncio.Task[None]] = set()
        # The last calls that were voided, in hand or still to come: an ordered set of ids.
        self.remembered: dict[str, None] = {}
        self.free = asyncio.Semaphore(service.slots)

    async def run(self) -> None:
        consumer = "svc_" + self.tokens.replace(".", "_")
        hearing = asyncio.create_task(self._hear(f"{self.service.root}.void.{self.tokens}.>"))
        try:
            consumers = await self._consumers(consumer)
            if consumers:
                log.info("serving %s", self.service.type)
            await asyncio.gather(*(self._pull(c) for c in consumers))
            if self.active:
                log.info("%d calls are finished before the end", len(self.active))
                await asyncio.gather(*self.active.values(), return_exceptions=True)
        finally:
            left = [hearing, *self.active.values()]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _hear(self, subject: str) -> None:
        if self.service.hear_voids:
            try:
                async for message in await self.transport.subscribe(subject):
                    # Whoever may make a consumer may have other messages delivered here: they keep the subject that they came on.
                    if _kind(message.subject) == "void":
                        self._void(message.subject)
            except AgentdError as e:
                if e.code != "permission_denied":
                    raise
                log.warning("voided calls may be noticed late: %s", e.message)

    def _void(self, subject: str) -> None:
        name = subject.rsplit(".", 1)[1]
        self.remembered[name] = None
        if len(self.remembered) > REMEMBERED:
            del self.remembered[next(iter(self.remembered))]
        if task := self.active.get(name):
            self.voided.add(task)
            task.cancel()

    async def _consumers(self, name: str) -> list[str]:
        """The consumers that have the service's calls, each as the server knows it: one on AGENTD_OUT, or one on each of the streams
        that calls are divided into, which the first of these says."""
        trouble, out = Trouble(name), wire.stream(self.service.root, "OUT")
        while not self.stop.is_set():
            try:
                for stream in (out, f"{out}_0"):
                    config = await self._config(f"{stream}.{name}")
                    if config is None:
                        continue
                    partitions = int((config.get("metadata") or {}).get("agentd-partitions", 1))
                    return [f"{stream}.{name}"] if partitions == 1 else [f"{out}_{i}.{name}" for i in range(partitions)]
                trouble.missing()
            except AgentdError as e:
                if e.code == "permission_denied":
                    return [f"{out}.{name}"]  # it may ask for calls, and for nothing else
                if not e.retryable:
                    raise
                trouble.failed(e)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), 1)
        return []

    async def _pull(self, consumer: str) -> None:
        """Takes calls of a consumer while there are free slots, until stop is set."""
        trouble = Trouble(consumer)
        stopping = asyncio.create_task(self.stop.wait())
        try:
            while not self.stop.is_set():
                await self.free.acquire()
                self.free.release()  # a slot is taken when a call is there, of whichever consumer
                pull = asyncio.create_task(self._next(consumer, trouble))
                forget = self.transport.on_reconnect(pull.cancel)  # the server that is there now does not know of it
                try:
                    await asyncio.wait({pull, stopping}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    forget()
                    pull.cancel()  # what the server still delivers comes again to others
                await asyncio.wait({pull})
                message = None if pull.cancelled() else pull.result()
                if message is not None:
                    try:
                        await self._take(message)
                    except Exception as e:
                        log.warning("a call is left to another delivery: %s", reason(e))
        finally:
            stopping.cancel()

    async def _take(self, message: Message) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await self.free.acquire()
        except TimeoutError:  # calls of other consumers have come before: somebody else may be free
            await self.transport.publish(message.reply, b"-NAK")
            return
        self._begin(message)

    async def _next(self, consumer: str, trouble: Trouble) -> Message | None:
        try:
            if trouble.reason and not await self._exists(consumer):
                trouble.missing()
            else:
                message = await self._ask(consumer, SHORT_PULL if trouble.reason else PULL)
                if message.status in (0, 404, 408):
                    trouble.over()
                    return None if message.status else message
                trouble.refused(message.status)
        except Exception as e:  # whatever it is, calls may come again, unless the connection was closed
            if isinstance(e, Unavailable) and not e.retryable:
                raise
            trouble.failed(e)
        await asyncio.sleep(1)
        return None

    async def _ask(self, consumer: str, expires: float) -> Message:
        """What the server answers to a pull: a call, or a message of its own that says why there is none."""
        inbox = await self.transport.subscribe(self.transport.new_inbox())
        try:
            body = json.dumps({"batch": 1, "expires": int(expires * 1e9)}).encode()
            await self.transport.publish(f"$JS.API.CONSUMER.MSG.NEXT.{consumer}", body, reply=inbox.subject)
            return await inbox.next(expires + 5)
        finally:
            await inbox.unsubscribe()

    async def _exists(self, consumer: str) -> bool:
        try:
            return await self._config(consumer) is not None
        except AgentdError as e:
            if e.code != "permission_denied":
                raise
            return True  # as far as it may know

    async def _config(self, consumer: str) -> dict[str, Any] | None:
        """The configuration of a consumer; None is of one that does not exist."""
        info = json.loads((await self.transport.request(f"$JS.API.CONSUMER.INFO.{consumer}")).data)
        if (error := info.get("error") or {}).get("err_code") in MISSING:
            return None
        if error:
            raise Unavailable(error.get("description"))
        return info["config"]

    def _begin(self, message: Message) -> None:
        name = message.subject.rsplit(".", 1)[1]
        if _kind(message.subject) == "void":
            self._void(message.subject)
            task = self._acknowledge(message)
        elif name in self.active:  # the delivery in hand settles this one too
            self.free.release()
            return
        elif name in self.remembered:  # nobody waits for it
            task = self._acknowledge(message)
        else:
            task = asyncio.create_task(self._handle(message))
            self.active[name] = task

        def ended(_: asyncio.Task[None]) -> None:
            self.free.release()
            if task.cancelled() and task in self.voided:  # before it began, and so before it could settle its delivery
                self._acknowledge(message)
            self.voided.discard(task)
            if self.active.get(name) is task:
                del self.active[name]

        task.add_done_callback(ended)

    def _acknowledge(self, message: Message) -> asyncio.Task[None]:
        return asyncio.create_task(self.transport.publish(message.reply, b"+ACK"))

    async def _handle(self, message: Message) -> None:
        extending = asyncio.create_task(self._extend(message))
        try:
            if await self._settled(message):
                await self.transport.publish(message.reply, b"+ACK")
        except asyncio.CancelledError:
            if asyncio.current_task() not in self.voided:
                raise  # the service ends: the call is another's, who waits for its answer
            log.info("call %s was voided while it was handled", message.subject.rsplit(".", 1)[1])
            await self.transport.publish(message.reply, b"+ACK")
        except AgentdError as e:
            log.warning("a call is left to another delivery: %s", e)
        except Exception:
            log.exception("a call is left to another delivery")
        finally:
            extending.cancel()

    async def _extend(self, message: Message) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT)
            with contextlib.suppress(Unavailable):
                await self.transport.publish(message.reply, b"+WPI")

    async def _settled(self, message: Message) -> bool:
        """Whether a delivery was dealt with: a call is answered, and of what is none a dead letter tells. False leaves it to another."""
        try:
            event = _call_in(message)
        except AgentdError as e:
            log.error("a message on %s is not a call: %s", message.subject, e)
            return await letters.send(self.transport, self.service.root, self.tokens, message, e)
        return await self._respond(wire.reply_subject(message.subject), await self._answer(event))

    async def _answer(self, event: dict[str, Any]) -> dict[str, Any]:
        """The answer to a call."""
        reply = {
            "specversion": "1.0", "id": f"{event['id']}-answer", "source": self.service.type, "subject": event.get("subject"),
            "time": wire.now(), "datacontenttype": "application/json", "parentid": event["id"],
            "to": event.get("redirectto") or event["source"], "executionunits": self.service.units or None,
            **{name: event.get(name) for name in ("accesscontrol", "traceparent", "tracestate")},
        }
        try:
            version = contracts.called(self.service.contract, event)
            call = Call(
                key=wire.call_of(event["id"])[0], id=event["id"], data=event["data"], version=version, agent=event.get("agent") or "",
                run=event.get("subject") or "", event=event,
            )
            schema = event.get("dataschema") or f"{self.service.contract['uri']}/{version}"
            return reply | {"dataschema": schema} | await self.service.answer(call)
        except AgentdError as e:
            error = e
        except (Exception, asyncio.CancelledError) as e:
            if asyncio.current_task().cancelling():  # else it was something of the handler's that was cancelled
                raise asyncio.CancelledError from e
            log.exception("the handler of call %s failed", event["id"])
            error = INTERNAL
        return self._failure(reply, error)

    def _failure(self, answer: dict[str, Any], error: AgentdError) -> dict[str, Any]:
        """The error in place of an answer."""
        return answer | {
            "type": f"sys.{self.service.type}.error", "dataschema": f"{self.service.contract['uri']}/0.0.0", "data": error.data(),
        }

    async def _respond(self, subject: str, answer: dict[str, Any]) -> bool:
        """Stores the answer, or the error that it cannot be sent: a handler that is called again would return the same. False leaves
        the call to another delivery."""
        try:
            return await self._store(subject, answer)
        except AgentdError as e:
            if e.code not in ("too_large", "invalid_event"):
                raise
            log.error("the answer to call %s cannot be sent: %s", answer["parentid"], e)
            large = AgentdError("too_large", "the answer is larger than the broker takes")
            return await self._store(subject, self._failure(answer, large if e.code == "too_large" else INTERNAL))

    async def _store(self, subject: str, event: dict[str, Any]) -> bool:
        """Stores the answer, once. While the server is away, or its stream is full, the call stays in hand: its handler is not to do again what
        it did. False leaves it to another delivery: the server refuses the answer, or the service is to end."""
        body, headers = wire.encode(event), wire.STRUCTURED | {"Nats-Expected-Last-Subject-Sequence": "0"}
        pauses = itertools.chain((0.05, 0.2, 1.0, 3.0), itertools.repeat(HEARTBEAT))
        tried = 0
        while tried < TRIES_AT_THE_END or not self.stop.is_set():
            try:
                stored = json.loads((await self.transport.request(subject, body, headers)).data)
                error = stored.get("error")
                if not error or error.get("err_code") == WRONG_LAST_SEQUENCE:
                    return True  # or it was stored by an earlier delivery
                why = str(error.get("description"))
                if not wire.is_full(error):
                    log.error("the answer to call %s is refused: %s", event["parentid"], why)
                    return False
            except Unavailable as e:
                if not e.retryable:
                    raise
                why = reason(e)
            log.warning("the answer to call %s is not stored yet: %s", event["parentid"], why)
            tried += 1
            await asyncio.sleep(next(pauses))
        return False


__all__ = ["Call", "Handler", "Service", "ToolError"]

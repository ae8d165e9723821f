"""Start runs, follow them, answer what they ask, and end them."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import json
from dataclasses import dataclass
from time import monotonic
from typing import Any, AsyncGenerator, AsyncIterator, Mapping, Sequence

from . import wire
from .answers import PERMISSION, PLAN, QUESTION, TURN, Awaited, Outcome, answered, check_decision, decided
from .errors import AgentdError, RunFailed, Unavailable
from .limits import limits
from .transport import Message, Transport

ASK_AGAIN, WATCH_EVERY = 1.0, 5.0
# Begins the types of live events.
LIVE = "agentd.live."
# How long workers know of an announcement.
WATCH_LASTS = 15.0
# How long a run's outcome is waited for before it is looked for, at first and in the end: it is told before it is stored, and that may be missed.
LOOK_FIRST, LOOK_AGAIN = 0.01, 5.0


@dataclass(frozen=True, slots=True)
class Run:
    """Names a run. init tells the outcome of one's own request from another's with the same name; "" is whoever started it."""

    agent: str
    name: str
    init: str = ""


@dataclass(frozen=True, slots=True)
class Live:
    """Something that happened in a run. mark orders milestones; Client.follow goes on after one. Ephemeral events may be lost."""

    type: str
    data: dict[str, Any]
    mark: tuple[int, int]
    ephemeral: bool
    event: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended well. reason says why, as reason:code."""

    type: str
    data: dict[str, Any]
    reason: str


class Client:
    """Starts and follows runs over a connection. who is the principal that the broker lets it be: by default the login's name. root is
    the first token of every subject: by default AGENTD_ROOT, else agentd."""

    def __init__(self, transport: Transport, *, who: str | None = None, source: str = "agentd.client", root: str = ""):
        self._transport, self._source, self._root = transport, source, wire.root_of(root)
        self._who = transport.user if who is None else who

    async def start(
        self, agent: str, data: dict[str, Any], *, key: str = "", name: str = "", type: str = "", require: Sequence[str] = (),
        tokens: int = 0, constraints: dict[str, Any] | None = None, tags: Mapping[str, str] | None = None,
        access_control: str | None = None, traceparent: str | None = None, tracestate: str | None = None,
    ) -> Run:
        """Starts a run, and returns when the broker has stored that. Who starts again with the same key gets the same run.

        require are patterns of tools that need permission in this run, beyond the agent's policy; tokens is the most that it may use, 0
        any number; constraints bound its calls beside its agent's (docs/lifecycle.md#constraints); tags are what people find it by
        (docs/index_of_runs.md#tags). Raises AgentdError: invalid_event and contract_violation for what can never be sent; Unavailable.
        What the agent refuses is an error of wait.
        """
        if not isinstance(data, dict):
            faults = [{"path": "$", "expected": "an object", "got": builtins.type(data).__name__}]
            raise AgentdError("contract_violation", "the input must be a JSON object", faults=faults)
        key = key or wire.new_id("run")
        init = wire.init_token(self._source, key)
        run = Run(agent, name or f"run-{init}", init)
        event = self._event(key, type or agent, run.name, data) | {
            "accesscontrol": access_control, "traceparent": traceparent, "tracestate": tracestate,
        } | limits(require, tokens, constraints, tags)
        await self._store(self._named(f"{self._root}.start.{wire.token(agent)}"), event)
        return run

    async def status(self, run: Run) -> dict[str, Any]:
        """How far a run is, as docs/wire.md says. Raises AgentdError: unknown_run, permission_denied; Unavailable: no worker answers."""
        return await self._ask(run.agent, {"run": run.name, "after": {"rev": wire.MAX_MILESTONE, "i": 0}})

    async def list(self, agent: str, status: str = "") -> AsyncIterator[dict[str, Any]]:
        """The runs of an agent with a status ("" is any), as of status, in no order that means anything."""
        cursor = ""
        while True:
            page = await self._ask(agent, {"list": {k: v for k, v in (("status", status), ("cursor", cursor)) if v}})
            for run in page.get("runs") or []:
                yield run
            cursor = page.get("next") or ""
            if not cursor:
                return

    async def follow(self, run: Run, after: tuple[int, int] = (0, 0)) -> AsyncGenerator[Live, None]:
        """Every milestone after the mark, once and in order, and ephemeral events as they come; until the run's end.

        Raises AgentdError: unknown_run for a run whose history was removed, permission_denied for one that the principal may not see.
        """
        async with contextlib.AsyncExitStack() as leaving:
            subscription = await self._transport.subscribe(f"{self._root}.stream.{self._address(run)}")
            leaving.push_async_callback(subscription.unsubscribe)
            lost, again = asyncio.Event(), asyncio.Event()
            lost.set()  # what is between the mark and now
            leaving.callback(self._transport.on_reconnect(again.set))
            asked = await self._transport.subscribe(f"{self._root}.watch.ask")
            leaving.push_async_callback(asked.unsubscribe)
            await self._announce(run)
            leaving.push_async_callback(_end, asyncio.create_task(_hear_asking(asked, again)))
            announcing = asyncio.create_task(self._keep_announcing(run, again, lost))
            leaving.push_async_callback(_end, announcing)
            at, whole = after, after == (0, 0)
            while True:
                if announcing.done():
                    await announcing  # it has failed: nothing more would be told
                if subscription.missed or lost.is_set():
                    subscription.missed = False
                    lost.clear()
                    try:
                        told = await self._history(run, at)
                    except AgentdError as e:
                        if not isinstance(e, Unavailable) and e.code != "internal":  # what workers need may be away, too
                            raise
                        told = []
                        lost.set()
                else:
                    told = []
                for live in told:
                    at, whole = live.mark, _closes(live.event)
                    yield live
                if told and told[-1].type == "run.finished":  # a run that was retried goes on after an end
                    return
                try:
                    message = await subscription.next(ASK_AGAIN)
                except TimeoutError:
                    continue
                live = _heard(message, subscription.subject)
                if live is None:
                    continue
                if live.ephemeral:
                    yield live
                elif live.mark > at:
                    if live.mark != (at[0], at[1] + 1) and not (whole and live.mark == (at[0] + 1, 0)):
                        lost.set()  # something is between the two, or may be
                        continue
                    at, whole = live.mark, _closes(live.event)
                    yield live
                    if live.type == "run.finished":
                        return

    async def _announce(self, run: Run) -> None:
        """Workers tell the live events of a run to who announces that they read them."""
        await self._transport.publish(f"{self._root}.watch.{self._address(run)}")

    async def _keep_announcing(self, run: Run, again: asyncio.Event, lost: asyncio.Event) -> None:
        """Announces again at once when again is set, as workers may not know of it, and in time. What was told before all workers knew, or
        after they had forgotten, was missed."""
        known, last = False, monotonic()
        while True:
            was_known = known
            try:
                async with asyncio.timeout(WATCH_EVERY):
                    await again.wait()
                again.clear()
                known = was_known = False
            except TimeoutError:
                known = True
            missed = not was_known or monotonic() - last > WATCH_LASTS
            await self._announce(run)
            last = monotonic()
            if missed:
                lost.set()

    async def wait(self, run: Run, timeout: float | None = None) -> Result:
        """The result of a run, when it has ended.

        Raises RunFailed when it ended with an error, AgentdError: unknown_run for a run whose history was removed, TimeoutError.
        """
        async with asyncio.timeout(timeout):
            while not run.init:
                try:
                    status = await self.status(run)
                except AgentdError as e:
                    if not _not_yet(e):
                        raise
                    await asyncio.sleep(ASK_AGAIN)
                    continue
                if end := status.get("terminal"):
                    return _result(run, end | {"terminationreason": status["reason"]})
                if status.get("purged"):
                    raise _purged(run, status)
                if not status.get("called"):
                    run = Run(run.agent, run.name, status["init"])
                elif status["status"] == "done":
                    raise AgentdError("unknown_run", f"run {run.name} is done ({status['reason']}), and its outcome was removed")
                else:  # its end goes to its caller; its status has it too
                    await asyncio.sleep(ASK_AGAIN)
            return _result(run, await self._outcome(run))

    async def _outcome(self, run: Run) -> dict[str, Any]:
        """The terminal event of a run, when there is one."""
        subject, pause = f"{self._root}.done.{self._address(run)}.{run.init}", LOOK_FIRST
        subscription = await self._transport.subscribe(subject)
        try:
            while True:
                with contextlib.suppress(Unavailable):  # where the connection is closed, the subscription says so
                    if found := await self._stored(subject):
                        return found
                try:  # what is heard may be an end that the stream has refused: it only says when to look
                    await subscription.next(pause)
                    pause = LOOK_FIRST
                except TimeoutError:
                    pause = min(2 * pause, LOOK_AGAIN)
        finally:
            await subscription.unsubscribe()

    async def send(self, run: Run, text: str) -> None:
        """Sends a message into a run that did not ask. It returns when the broker has stored it. Raises AgentdError: message_refused."""
        if not 1 <= (size := len(text.encode(errors="replace"))) <= wire.MAX_MESSAGE:
            raise AgentdError("message_refused", f"the message has {size} bytes; it must have 1 to {wire.MAX_MESSAGE}")
        await self._control("message", run, {"message": text}, self._who)

    async def cancel(self, run: Run, reason: str = "") -> None:
        """Asks a run to end. Whoever started it may, and an operator."""
        who = self._who
        try:
            who = who if (await self.status(run)).get("initiator", "") == who else ""
        except AgentdError as e:
            if not _not_yet(e):
                raise
        await self._control("cancel", run, {"reason": reason}, who)

    async def asked(self, run: Run) -> builtins.list[dict[str, Any]]:
        """The questions, turns, permission requests and plans to approve that wait for a person: call, type, event, asked."""
        return [w for w in (await self.status(run)).get("waiting") or [] if w["type"] in (PERMISSION, PLAN, QUESTION, TURN)]

    async def answer(self, run: Run, text: str = "", *, call: str = "", end: bool = False, data: dict[str, Any] | None = None) -> str:
        """Answers the open question or turn of a run, or the one of several that call names. Returns the id of the answer.

        data is what the form of the question asks for, or the answer as it is on the wire, in place of a text; end ends a conversation
        after the text. It returns when the broker has stored the answer: outcome tells whether it counts. Raises AgentdError:
        contract_violation, unknown_run.
        """
        asked = self._only(await self.asked(run), call, QUESTION, TURN)
        kind = "agentd.conversation.answered" if asked["type"] == TURN else "agentd.question.answered"
        return await self._reply(run, asked, kind, answered(asked["type"], text, end, data))

    async def decide(self, run: Run, decision: str, *, request: str = "", **terms: Any) -> str:
        """Decides a permission request, or on a plan: allow, deny, ask or result; terms are those of docs/permissions.md#the-decision.

        args of a plan are its steps as they are to be done (docs/planning.md#approval-by-people). On a request for several calls, calls
        are those that it is about, as [{"call": id}], or all=True. The decision is on the arguments that the request shows now, unless
        args_sha256 says on which. Returns the id of the decision when the broker has stored it: outcome tells whether it counts. Raises
        AgentdError: decision_refused, unknown_run.
        """
        check_decision(decision)
        asked = self._only(await self.asked(run), request, PERMISSION, PLAN)
        return await self._reply(run, asked, "agentd.permission.decided", decided(asked["asked"], decision, terms))

    async def outcome(self, run: Run, event: str, timeout: float = 10.0) -> Outcome:
        """What a run made of an answer or a decision, by the id that answer or decide has returned. Where that is not known in time, or before
        the run's end, it is sent. Raises as follow does."""
        awaited = Awaited(event)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout), contextlib.aclosing(self.follow(run)) as following:
                async for live in following:
                    if outcome := awaited.told(live.type, live.data):
                        return outcome
        return Outcome("sent")

    @staticmethod
    def _only(asked: Sequence[dict[str, Any]], call: str, *types: str) -> dict[str, Any]:
        meant = [w for w in asked if w["type"] in types and call in ("", w["call"], w["event"])]
        if len(meant) != 1:
            raise AgentdError("unknown_run", f"the run waits for {len(meant)} such answers" + ("; name the call" if meant else ""))
        return meant[0]

    async def _reply(self, run: Run, asked: dict[str, Any], kind: str, data: dict[str, Any]) -> str:
        tokens = f"{wire.domain_token(asked.get('domain'))}.{wire.token(asked['type'])}.{self._address(run)}.{asked['event']}"
        event = self._event(wire.new_id(asked["event"] + "-answer"), kind, run.name, data)
        subject = f"{self._root}.in.{tokens}"
        event |= {"dataschema": asked.get("schema"), "to": subject, "parentid": asked["event"]}
        await self._store(self._named(subject), event)
        return event["id"]

    async def _control(self, verb: str, run: Run, data: dict[str, Any], who: str) -> None:
        subject = f"{self._root}.ctl.{verb}.{self._address(run)}"
        event = self._event(wire.new_id(verb), f"agentd.run.{verb}", run.name, data)
        await self._store(f"{subject}.{who}" if who else subject, event)

    def _event(self, event_id: str, kind: str, subject: str, data: dict[str, Any]) -> dict[str, Any]:
        return {
            "specversion": "1.0", "id": event_id, "source": self._source, "type": kind, "subject": subject, "time": wire.now(),
            "datacontenttype": "application/json", "data": data,
        }

    def _address(self, run: Run) -> str:
        return f"{wire.token(run.agent)}.{wire.run_key(run.name)}"

    def _named(self, subject: str) -> str:
        return f"{subject}.{self._who}" if self._who else subject

    async def _store(self, subject: str, event: dict[str, Any]) -> None:
        """Publishes to a stream. It is repeat-safe, because the event's id is its identity: what is lost is sent again."""
        body = wire.encode(event)
        for attempt in range(5):
            try:
                stored = json.loads((await self._transport.request(subject, body, wire.STRUCTURED)).data)
            except Unavailable as e:
                if attempt == 4 or not e.retryable:
                    raise
                await asyncio.sleep(0.2 * 2**attempt)
                continue
            if error := stored.get("error"):
                raise Unavailable(f"{subject} is not stored: {error.get('description')}")
            return

    async def _ask(self, agent: str, query: dict[str, Any]) -> dict[str, Any]:
        """Asks workers: of runs that the principal started, and where those are others', as one who may see all, if it may."""
        subject = f"{self._root}.get.{wire.token(agent)}"
        try:
            return await self._ask_on(self._named(subject), query)
        except AgentdError as e:
            if e.code != "permission_denied" or not self._who:
                raise
            try:
                return await self._ask_on(subject, query)
            except AgentdError as other:
                raise e if other.code == "permission_denied" else other from None

    async def _ask_on(self, subject: str, query: dict[str, Any]) -> dict[str, Any]:
        answer = await self._transport.request(subject, json.dumps(query).encode(), timeout=10)
        if code := answer.header("Nats-Service-Error-Code"):
            text = answer.header("Nats-Service-Error")
            raise Unavailable(text) if code == "unavailable" else AgentdError(code, text)
        return json.loads(answer.data)

    async def _history(self, run: Run, after: tuple[int, int]) -> builtins.list[Live]:
        told: builtins.list[Live] = []
        while True:
            try:
                page = await self._ask(run.agent, {"run": run.name, "after": {"rev": after[0], "i": after[1]}})
            except AgentdError as e:
                if e.code == "unknown_run":
                    return told  # it has not begun
                raise
            if page.get("purged"):
                raise _purged(run, page)
            told += [_live(event) for event in page.get("milestones") or []]
            if not page.get("more") or not told:
                return told
            after = told[-1].mark

    async def _stored(self, subject: str) -> dict[str, Any] | None:
        """The event that is stored on a subject. What the server itself has put there is none: it answers a request on whatever reply subject
        that names. No program publishes events without a header."""
        found = await self._transport.request(f"$JS.API.DIRECT.GET.{wire.stream(self._root, 'DONE')}.{subject}")
        if found.status or not found.data:
            return None
        try:
            return wire.decode(found.data)
        except AgentdError:
            if any(not name.lower().startswith("nats-") for name in found.headers):
                raise
            return None


async def _hear_asking(asked: Any, again: asyncio.Event) -> None:
    """Sets again when a worker asks who watches. It may not be let hear that; a connection that is closed the follower notices itself."""
    with contextlib.suppress(AgentdError):
        while True:
            await asked.next()
            again.set()


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _not_yet(e: AgentdError) -> bool:
    """Whether a run is not known yet, or nobody is there now who knows it."""
    return e.code == "unknown_run" or isinstance(e, Unavailable) and e.retryable


def _purged(run: Run, status: dict[str, Any]) -> AgentdError:
    return AgentdError("unknown_run", f"run {run.name} is done ({status['reason']}), and its history was removed")


def _heard(message: Message, subject: str) -> Live | None:
    """The live event in a message on a subject; None is of what is none. Whoever may make a consumer may have other messages delivered there,
    which keep the subject that they came on, and the server itself answers a request on whatever reply subject that names."""
    try:
        event = json.loads(message.data) if message.subject == subject else None
    except ValueError:
        return None
    return _live(event) if isinstance(event, dict) and str(event.get("type")).startswith(LIVE) else None


def _live(event: dict[str, Any]) -> Live:
    return Live(
        event["type"].removeprefix(LIVE), event.get("data") or {}, (event.get("rev", 0), event.get("i", 0)),
        event.get("ephemeral") is True, event,
    )


def _closes(event: dict[str, Any]) -> bool:
    """Whether a milestone is the last of its entry."""
    return event.get("i", 0) + 1 == event.get("count")


def _result(run: Run, event: dict[str, Any]) -> Result:
    reason = event.get("terminationreason") or ""
    if event["type"].startswith("sys.") and event["type"].endswith(".error"):
        raise RunFailed(run.name, AgentdError.of(event["data"]), reason)
    return Result(event["type"], event["data"], reason)

"""The data of what people answer and decide. What no run would take is refused here, where somebody is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import wire
from .errors import AgentdError

PERMISSION, PLAN = "agentd.permission.request", "agentd.plan.review"
QUESTION, TURN = "agentd.question.ask", "agentd.conversation.turn"

_DECISIONS = ("allow", "deny", "ask", "result")
# The other members of a decision, and those of what it says of one of several calls.
_TERMS = ("args_sha256", "calls", "all", "scope", "pattern", "args", "result", "reason", "uses", "expires")
_CALL_TERMS = ("call", "args_sha256", "decision", "args", "result", "reason")
# The members of the answer to a question; other data is what its form asks for.
_ANSWER = {"answer", "action", "content"}


def answered(kind: str, text: str, end: bool, data: dict[str, Any] | None) -> dict[str, Any]:
    """The data of the answer to a question or turn. Raises AgentdError: contract_violation, and invalid_event for what has no JSON."""
    if data is not None:
        if text or end:
            raise _violation("an answer is a text or data, not both")
        if not isinstance(data, dict):
            raise _violation("the data of an answer must be a JSON object")
        return data if kind == TURN else _form(data)
    if end and kind != TURN:
        raise _violation("only a conversation has an end")
    if not text.strip() and not end:
        raise _violation("the answer is empty")
    return {"message": text, "end": end} if kind == TURN else {"answer": text}


def _form(data: dict[str, Any]) -> dict[str, Any]:
    """Data as the answer to a question: as it is on the wire, or what fits the question's form."""
    if data and data.keys() <= _ANSWER:
        return data
    return {"answer": wire.text_of(data), "content": data}


def _violation(why: str) -> AgentdError:
    return AgentdError("contract_violation", why)


def check_decision(decision: str) -> None:
    """Raises AgentdError: decision_refused."""
    if decision not in _DECISIONS:
        raise _refused(f"the decision is {decision!r}; it must be one of {', '.join(_DECISIONS)}")


def decided(request: dict[str, Any], decision: str, terms: dict[str, Any]) -> dict[str, Any]:
    """The data of a decision, with the hashes of what the request asks for. Terms without a value are left out. Raises AgentdError:
    decision_refused."""
    terms = _given(terms, _TERMS)
    calls, named, everything = request.get("calls") or [], terms.get("calls") or [], bool(terms.get("all"))
    if not calls and (named or everything):
        raise _refused("the request is for one call; decide on it without naming calls")
    if calls and bool(named) == everything:
        raise _refused(f"the request is for {len(calls)} calls; name those that you decide on, in calls, or all=True")
    if not named:
        return {"decision": decision} | _on(request["args_sha256"], terms)
    if not isinstance(named, (list, tuple)) or not all(isinstance(call, dict) for call in named):
        raise _refused('calls must be a list of {"call": id}')
    asked = {call["call"]: call["args_sha256"] for call in calls}
    named = [_given(call, _CALL_TERMS) for call in named]
    for call in named:
        if call.get("call") not in asked:
            raise _refused(f"the request does not ask for the call {call.get('call')!r}")
        check_decision(call.get("decision", decision))
    return {"decision": decision} | terms | {"calls": [_on(asked[call["call"]], call) for call in named]}


def _given(terms: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    if unknown := [name for name in terms if name not in names]:
        raise _refused(f"a decision has no {', '.join(map(repr, unknown))}; it has {', '.join(names)}")
    return {name: value for name, value in terms.items() if value or value == {}}


def _on(shown: str, terms: dict[str, Any]) -> dict[str, Any]:
    if (terms.get("args_sha256") or shown) != shown:
        raise _refused("the decision is on other arguments than those of the request; look at it again")
    return terms | {"args_sha256": shown}


def _refused(why: str) -> AgentdError:
    return AgentdError("decision_refused", why)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run made of an answer or a decision. state is counted; refused, which refused says why; or sent, of which no more is known than
    that it is stored: no worker has come to it yet, it came too late, or it became a dead letter.

    open says that the call still waits: for a decision that counts, for further approvers where allowed of a quorum have allowed it, or for
    decisions on the rest, the calls of the same request. A call that is queued is allowed and waits for its turn in the round, of which so
    many requests are undecided.
    """

    state: str
    refused: str = ""
    open: bool = False
    allowed: int = 0
    quorum: int = 0
    rest: int = 0
    queued: bool = False
    undecided: int = 0


class Awaited:
    """What the milestones of a run tell of one answer, which has an id of Client.answer or Client.decide."""

    def __init__(self, event: str):
        self._event, self._decided = event, []
        called = wire.call_of(event.rpartition("-answer-")[0])
        self._call = called[0] if called else None

    def told(self, kind: str, data: dict[str, Any]) -> Outcome | None:
        """What became of the answer, where this milestone is the last that had to be told of it."""
        if kind == "permission.decided":
            if data["decision"].get("event") != self._event:
                return None
            self._decided.append(data)  # of each call that the decision is on
            return None if data.get("more") else _outcome(self._decided)
        if kind not in ("call.result", "question.answered", "conversation.answer"):
            return None
        if data.get("event") == self._event:
            return Outcome("counted")
        # A call has one result: after somebody else's, or the end of the wait for one, this one comes too late.
        late = self._call and (data.get("question") or data.get("call")) == self._call
        return Outcome("sent") if late else None


def _outcome(decided: list[dict[str, Any]]) -> Outcome:
    """What became of a decision by what became of it for each call: it counts where it counts for one."""
    refused = [why for d in decided if (why := d["decision"].get("refused"))]
    counted = [d for d in decided if not d["decision"].get("refused")]
    allowed, quorum, undecided = (max((d.get(name, 0) for d in counted), default=0) for name in ("allowed", "quorum", "undecided"))
    rest = decided[-1].get("rest", 0)
    return Outcome(
        "counted" if counted else "refused", next(iter(refused), ""), not counted or quorum > 0 or rest > 0, allowed, quorum, rest,
        any(d.get("queued") for d in counted), undecided,
    )

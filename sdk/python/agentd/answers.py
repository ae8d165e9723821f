"""The data of what people answer and decide. What no run would take is refused here, where somebody is told."""

from __future__ import annotations

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

"""Names, tokens, ids, subjects and events, as docs/wire.md has them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import time
from datetime import datetime
from typing import Any

from .errors import AgentdError

STRUCTURED = {"Content-Type": "application/cloudevents+json"}
MAX_MILESTONE = 2**63 - 1
# How deep data may nest, and how many object members it may have in total.
MAX_DEPTH, MAX_MEMBERS = 64, 10064

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_CALL = re.compile(
    r"(c(0|[1-9][0-9]{0,5})-(0|[1-9][0-9]{0,3})-[a-z2-7]{26})(-r([1-9][0-9]{0,3}))?(-([A-Za-z0-9][A-Za-z0-9_-]{0,63}))?"
)
_ATTEMPT = re.compile(r"r[0-9]+(-|$)")


def t26(data: bytes) -> str:
    return base64.b32encode(hashlib.sha256(data).digest()[:16]).decode().rstrip("=").lower()


def run_key(subject: str) -> str:
    """The two tokens "<p>.<run>" of a run's name."""
    digest = hashlib.sha256(subject.encode()).digest()
    return f"{digest[0]:03d}.{t26(subject.encode())}"


def init_token(source: str, event_id: str) -> str:
    return t26(source.encode() + b"\0" + event_id.encode())


def terminal_id(subject: str, init: str) -> str:
    run = run_key(subject).split(".")[1]
    return "t-" + t26(f"{run}\0{init}".encode())


def token(name: str) -> str:
    """The token of an agent's, type's or domain's name. Raises AgentdError: invalid_event."""
    if len(name) > 128 or not _NAME.fullmatch(name):
        raise AgentdError("invalid_event", f"{name!r} is not a name: want letters, digits, _, - and single dots")
    return name.replace(".", "_")


def domain_token(domain: str | None) -> str:
    return token(domain) if domain else "local"


def call_of(event_id: str) -> tuple[str, int, str] | None:
    """The call, attempt and domain token of a call's event id; None of another text."""
    found = _CALL.fullmatch(event_id)
    if not found:
        return None
    call, attempt, domain = found[1], int(found[5] or 1), found[7] or ""
    if found[5] and attempt < 2 or _ATTEMPT.match(domain):
        return None
    return call, attempt, domain


def reply_subject(delivered: str) -> str:
    """Where a call that was delivered on a subject is answered: nothing in the call itself may say so."""
    root, kind, rest = delivered.split(".", 2)
    if kind != "out":
        raise AgentdError("invalid_event", f"{delivered} is not the subject of a call")
    return f"{root}.in.{rest}"


def encode(event: dict[str, Any]) -> bytes:
    """An event in structured mode. Attributes that are None are left out. Raises AgentdError: invalid_event, for what nobody could read."""
    present = {name: value for name, value in event.items() if value is not None}
    try:
        if (members := _members(present.get("data"))) > MAX_MEMBERS:
            raise AgentdError("invalid_event", f"$.data: expected at most {MAX_MEMBERS} object members in total, got {members}")
        return json.dumps(present, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as e:
        raise AgentdError("invalid_event", f"the event has no JSON in UTF-8: {e}") from e


def _members(value: Any, depth: int = 1) -> int:
    """How many object members data has. Raises AgentdError: invalid_event, where it nests too deep or a name would be there twice."""
    if not isinstance(value, (dict, list, tuple)):
        return 0
    if depth > MAX_DEPTH:
        raise AgentdError("invalid_event", f"$.data: expected at most {MAX_DEPTH} levels of nesting, got more")
    if not isinstance(value, dict):
        return sum(_members(v, depth + 1) for v in value)
    names = {name if isinstance(name, str) else json.dumps(name) for name in value}
    if len(names) < len(value):
        raise AgentdError("invalid_event", "$.data: expected each name once in an object, got twice")
    return len(value) + sum(_members(v, depth + 1) for v in value.values())


def decode(body: bytes) -> dict[str, Any]:
    """The event of a message that agentd wrote: it sends structured mode alone. Raises AgentdError: invalid_event."""
    try:
        event = json.loads(body)
    except (ValueError, RecursionError) as e:
        raise AgentdError("invalid_event", f"the body is not a CloudEvent in structured mode: {e}") from None
    if not isinstance(event, dict):
        raise AgentdError("invalid_event", "the body is not a JSON object")
    missing = [name for name in ("id", "source", "type") if not isinstance(event.get(name), str) or not event[name]]
    if event.get("specversion") != "1.0" or missing:
        raise AgentdError("invalid_event", f"the event lacks {', '.join(missing) or 'specversion 1.0'}")
    data = event.get("data")
    if data is not None and not isinstance(data, dict):
        raise AgentdError("invalid_event", "$.data: expected an object")
    return event | {"data": data or {}}


def new_id(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(13)}"


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() // 1_000_000 % 1000:03d}Z"


def seconds_until(instant: str | None) -> float | None:
    """How long it is until a time of RFC 3339; None of one that is absent or cannot be read."""
    try:
        return datetime.fromisoformat(instant or "").timestamp() - time.time()
    except ValueError:
        return None

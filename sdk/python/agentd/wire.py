"""Names, tokens, ids, subjects and events, as docs/wire.md has them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
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
# How many bytes of UTF-8 an attribute has at most, and a message that is sent into a run.
MAX_ATTRIBUTE, MAX_MESSAGE = 8 << 10, 64 << 10

_ROOT = re.compile(r"[a-z0-9_-]{1,64}")

_REQUIRED = ("id", "source", "type")
# The other attributes that are text, or absent.
_TEXTS = (
    "subject", "datacontenttype", "dataschema", "to", "accesscontrol", "redirectto", "traceparent", "tracestate", "parentid", "domain", "agent",
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_CALL = re.compile(
    r"(c(0|[1-9][0-9]{0,5})-(0|[1-9][0-9]{0,3})-[a-z2-7]{26})(-r([1-9][0-9]{0,3}))?(-([A-Za-z0-9][A-Za-z0-9_-]{0,63}))?"
)
_ATTEMPT = re.compile(r"r[0-9]+(-|$)")


def t26(data: bytes) -> str:
    return base64.b32encode(hashlib.sha256(data).digest()[:16]).decode().rstrip("=").lower()


def run_key(subject: str) -> str:
    """The two tokens "<p>.<run>" of a run's name. Raises AgentdError: invalid_event."""
    text = _utf8(subject)
    return f"{hashlib.sha256(text).digest()[0]:03d}.{t26(text)}"


def init_token(source: str, event_id: str) -> str:
    """The token of an init event. Raises AgentdError: invalid_event."""
    return t26(_utf8(source) + b"\0" + _utf8(event_id))


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise AgentdError("invalid_event", "a name or key has no UTF-8: it has half of a surrogate pair") from None


def root_of(root: str) -> str:
    """The first token of every subject: the one that is given, AGENTD_ROOT, or agentd. Raises AgentdError: config."""
    root = root or os.environ.get("AGENTD_ROOT") or "agentd"
    if not _ROOT.fullmatch(root):
        raise AgentdError("config", f"subject root {root!r} is not of the form {_ROOT.pattern}")
    return root


def stream(root: str, zone: str) -> str:
    """The name of a stream."""
    return f"{root.upper()}_{zone}"


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


# With these codes the server says that a limit of JetStream or of the account is reached, and with the last one that a stream has not stored a
# message; its description says why: "maximum bytes exceeded" at a limit of the stream itself.
_EXHAUSTED, _NOT_STORED = (10002, 10023, 10028, 10047), 10077


def is_full(error: dict[str, Any]) -> bool:
    """Whether the server's refusal to store a message says that there is no room for it."""
    code = error.get("err_code")
    return code in _EXHAUSTED or code == _NOT_STORED and str(error.get("description")).startswith("maximum ")


def reply_subject(delivered: str) -> str:
    """Where a call that was delivered on a subject is answered: nothing in the call itself may say so."""
    root, kind, rest = delivered.split(".", 2)
    if kind != "out":
        raise AgentdError("invalid_event", f"{delivered} is not the subject of a call")
    return f"{root}.in.{rest}"


def encode(event: dict[str, Any]) -> bytes:
    """An event in structured mode. Attributes that are None are left out. Raises AgentdError: invalid_event, for what nobody could read."""
    present = {name: value for name, value in event.items() if value is not None}
    _check_attributes(present)
    if not isinstance(present.get("data", {}), dict):
        raise AgentdError("invalid_event", f"$.data: expected an object, got {type(present['data']).__name__}")
    return _json(present, present.get("data"))


def text_of(data: dict[str, Any]) -> str:
    """Data as a text that shows it, its names sorted. Raises AgentdError: invalid_event, as encode does."""
    return _json(data, data, sort_keys=True).decode()


def _json(value: Any, data: Any, **options: Any) -> bytes:
    """A value with data in it."""
    try:
        if (members := _members(data)) > MAX_MEMBERS:
            raise AgentdError("invalid_event", f"$.data: expected at most {MAX_MEMBERS} object members in total, got {members}")
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, **options).encode()
    except (TypeError, ValueError) as e:
        raise AgentdError("invalid_event", f"$.data: expected JSON, which is of dict, list, str, finite numbers, bool and None: {e}") from e


def _check_attributes(event: dict[str, Any]) -> None:
    """Raises AgentdError: invalid_event, with every fault."""
    faults = [
        {"path": f"$.{name}", "expected": "a non-empty string", "got": "nothing"} for name in _REQUIRED if event.get(name) in (None, "")
    ]
    for name, value in event.items():
        if isinstance(value, str):
            faults += [{"path": f"$.{name}"} | fault for fault in _faults(value)]
        elif name in _REQUIRED + _TEXTS and value is not None:
            faults.append({"path": f"$.{name}", "expected": "a string", "got": type(value).__name__})
    if faults:
        raise AgentdError("invalid_event", "the event has attributes that nobody could read", faults=faults)


def _faults(text: str) -> list[dict[str, str]]:
    """What keeps a text from being an attribute."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return [{"expected": "valid UTF-8", "got": "half of a surrogate pair"}]
    if size > MAX_ATTRIBUTE:
        return [{"expected": f"at most {MAX_ATTRIBUTE} bytes", "got": str(size)}]
    if control := _CONTROL.search(text):
        return [{"expected": "text without control characters", "got": f"one at byte {len(text[: control.start()].encode())}"}]
    return []


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
    if event.get("specversion") != "1.0":
        raise AgentdError("invalid_event", "the event lacks specversion 1.0")
    _check_attributes({name: value for name, value in event.items() if name != "data"})
    data = event.get("data")
    if data is not None and not isinstance(data, dict):
        raise AgentdError("invalid_event", "$.data: expected an object")
    return event | {"data": data or {}}


def new_id(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(13)}"


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() // 1_000_000 % 1000:03d}Z"


def seconds_until(instant: Any) -> float | None:
    """How long it is until a time of RFC 3339; None of what is none."""
    try:
        at = datetime.fromisoformat(instant)
    except (TypeError, ValueError):
        return None
    return at.timestamp() - time.time() if at.tzinfo else None


def same_uri(a: str, b: str) -> bool:
    """Whether two URIs name the same contract: "#/airline/book" is short for "agentd:/airline/book"."""
    return _absolute(a) == _absolute(b)


def _absolute(uri: str) -> str:
    return "agentd:/" + uri[2:] if uri.startswith("#/") else uri

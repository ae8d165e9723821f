"""The attributes of an init event that bound its run, or are what it is found by. What no worker takes is refused here, where somebody is told."""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

from . import wire
from .errors import AgentdError

# How many tags a run has at most, and how many bytes of UTF-8 the value of one.
MAX_TAGS, MAX_TAG_VALUE = 16, 128
_KEY = re.compile(r"[a-z0-9_.-]{1,32}")
_NOT_IN_VALUE = re.compile(r"[,\x00-\x1f\x7f-\x9f]")


def limits(
    require: Sequence[str], tokens: int, constraints: dict[str, Any] | None, tags: Mapping[str, str] | None
) -> dict[str, str | None]:
    """The attributes; None is one that is left out. Raises AgentdError: invalid_event."""
    if isinstance(require, (str, bytes)) or not all(isinstance(pattern, str) and pattern.strip() for pattern in require):
        raise _bad(f"require is {require!r}; want a list of patterns")
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0:
        raise _bad(f"tokens are {tokens!r}; want a whole number, and 0 for any number")
    return {
        "requirepermission": ",".join(require) or None, "tokenbudget": str(tokens) if tokens else None,
        "constraints": _json(constraints) if constraints is not None else None, "tags": _tags(tags or {}) or None,
    }


def _json(constraints: dict[str, Any]) -> str:
    if not isinstance(constraints, dict):
        raise _bad(f"the constraints are {type(constraints).__name__}; want a dict")
    try:
        return wire.text_of(constraints)
    except AgentdError as e:
        raise _bad(f"the constraints have no JSON: {e.message}") from e


def _tags(tags: Mapping[str, str]) -> str:
    faults = []
    if len(tags) > MAX_TAGS:
        faults.append({"path": "$.tags", "expected": f"at most {MAX_TAGS} tags", "got": str(len(tags))})
    for key, value in tags.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            faults.append({"path": "$.tags", "expected": "a key of 1 to 32 of a-z, 0-9, _ . -", "got": repr(key)})
        if not isinstance(value, str) or len(value.encode(errors="replace")) > MAX_TAG_VALUE or _NOT_IN_VALUE.search(value):
            expected = f"at most {MAX_TAG_VALUE} bytes of text without commas and control characters"
            faults.append({"path": f"$.tags.{key}", "expected": expected, "got": repr(value)})
    if faults:
        raise AgentdError("invalid_event", "the tags are not valid", faults=faults)
    return ",".join(f"{key}={tags[key]}" for key in sorted(tags))


def _bad(why: str) -> AgentdError:
    return AgentdError("invalid_event", why)

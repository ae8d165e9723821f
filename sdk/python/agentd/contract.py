"""Contracts: which version a call means, and what does not fit its schemas."""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import re
from fractions import Fraction
from typing import Any

from . import wire
from .errors import AgentdError

log = logging.getLogger("agentd.service")

_PART = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(rf"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(?:-({_PART}(?:\.{_PART})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?")
# The classes of the package jsonschema by the values of $schema, without a trailing "#" and with http.
_DIALECTS = {
    "http://json-schema.org/draft-04/schema": "Draft4Validator", "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator", "http://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "http://json-schema.org/draft/2020-12/schema": "Draft202012Validator",
}
_NEWEST_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def faults(contract: dict[str, Any]) -> list[dict[str, str]]:
    """What keeps a contract from being served."""
    found = []

    def fault(path: str, expected: str, got: Any) -> None:
        found.append({"path": path, "expected": expected, "got": str(got)})

    if not contract.get("uri"):
        fault("$.uri", "a URI", "nothing")
    if not _is_name(contract.get("type")):
        fault("$.type", "a name", repr(contract.get("type")))
    versions = contract.get("versions") or {}
    if not versions:
        fault("$.versions", "at least one", "none")
    for version, definition in versions.items():
        path = f"$.versions[{json.dumps(version)}]"
        if not _VERSION.fullmatch(version) or version == "0.0.0":
            fault(path, "a semantic version above 0.0.0", version)
        if not isinstance(definition.get("accepts"), (dict, bool)):
            fault(f"{path}.accepts", "a schema", repr(definition.get("accepts")))
        emits = definition.get("emits") or {}
        if not emits:
            fault(f"{path}.emits", "at least one answer", "none")
        for name in emits:
            if not _is_name(name) or name == f"sys.{contract.get('type')}.error":
                fault(f"{path}.emits", "names of answers other than the system error", name)
    return found


def _is_name(name: Any) -> bool:
    try:
        return isinstance(name, str) and bool(wire.token(name))
    except AgentdError:
        return False


def called(contract: dict[str, Any], event: dict[str, Any]) -> str:
    """The version that a call means. Raises AgentdError: invalid_event, contract_missing."""
    if event["type"] != contract["type"]:
        raise AgentdError("invalid_event", f"this service answers {contract['type']} and was called with {event['type']}")
    schema = event.get("dataschema")
    if not schema:
        return newest(contract)
    uri, _, version = schema.rpartition("/")
    if not uri or not _VERSION.fullmatch(version):
        raise AgentdError("invalid_event", f"dataschema {schema!r} is not of the form <uri>/<version>")
    if not wire.same_uri(uri, contract["uri"]):
        raise AgentdError("contract_missing", f"this service serves {contract['uri']}, not {uri}")
    if version not in contract["versions"]:
        raise AgentdError("contract_missing", f"contract {uri} has no version {version}; it has {', '.join(contract['versions'])}")
    return version


def newest(contract: dict[str, Any]) -> str:
    """The highest version; a pre-release only where there is nothing else."""
    return max(contract["versions"], key=_precedence)


def _precedence(version: str) -> tuple[Any, ...]:
    found = _VERSION.fullmatch(version)
    if not found:
        return ()
    parts = found[4].split(".") if found[4] else []
    return not parts, *(int(n) for n in found.group(1, 2, 3)), [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in parts]


class Checks:
    """Finds what does not fit a schema, with the package jsonschema; without it nothing is found here."""

    def __init__(self) -> None:
        self._validators: dict[str, Any] = {}  # None is of a schema that is not checked
        self._said: set[str] = set()

    def faults(self, name: str, schema: dict[str, Any], data: Any) -> list[dict[str, Any]]:
        """Every fault of data by the schema of that name. Of one that jsonschema cannot check there is none, and why is said once."""
        if name not in self._validators:
            self._validators[name] = self._validator(schema)
        validator = self._validators[name]
        errors = validator.iter_errors(data) if validator else ()
        return [{"path": e.json_path, "expected": e.message, "got": type(e.instance).__name__} for e in errors]

    def _validator(self, schema: dict[str, Any]) -> Any:
        if importlib.util.find_spec("jsonschema") is None:
            return None
        import jsonschema

        declared = schema.get("$schema", _NEWEST_DIALECT) if isinstance(schema, dict) else _NEWEST_DIALECT
        name = _DIALECTS.get(str(declared).removesuffix("#").replace("https:", "http:", 1))
        if name is None:
            return self._unchecked(f"the dialect {declared} is not known")
        validator = getattr(jsonschema, name)
        try:
            validator.check_schema(schema)
        except jsonschema.SchemaError as e:
            return self._unchecked(f"{e.json_path}: {e.message}")
        return jsonschema.validators.extend(validator, {"multipleOf": _multiple_of})(schema)

    def _unchecked(self, why: str) -> None:
        if why not in self._said:
            log.warning("data is checked by agentd alone, not here, because of its schema: %s", why)
        self._said.add(why)


def _multiple_of(validator: Any, of: Any, data: Any, schema: Any) -> Any:
    """multipleOf of numbers as they are written: 0.07 is one of 0.01, which their floats do not say."""
    if not validator.is_type(data, "number") or isinstance(data, float) and not math.isfinite(data):
        return
    if (_written(data) / _written(of)).denominator != 1:
        import jsonschema

        yield jsonschema.ValidationError(f"{data!r} is not a multiple of {of}")


def _written(number: int | float) -> Fraction:
    return Fraction(number if isinstance(number, int) else repr(float(number)))

"""Contracts: which version a call means, and what does not fit its schemas."""

from __future__ import annotations

import importlib.util
import json
import logging
import re
from pathlib import Path
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


def read(path: Path) -> dict[str, Any]:
    """The contract in a JSON or YAML file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return json.loads(text)
    try:
        import yaml
    except ImportError:
        raise ImportError(f"{path} needs the package pyyaml; or use JSON: agentd contracts show --json") from None
    return yaml.safe_load(text)


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

        declared = schema.get("$schema", _NEWEST_DIALECT)
        name = _DIALECTS.get(str(declared).removesuffix("#").replace("https:", "http:", 1))
        if name is None:
            return self._unchecked(f"the dialect {declared} is not known")
        validator = getattr(jsonschema, name)
        try:
            validator.check_schema(schema)
        except jsonschema.SchemaError as e:
            return self._unchecked(f"{e.json_path}: {e.message}")
        return validator(schema)

    def _unchecked(self, why: str) -> None:
        if why not in self._said:
            log.warning("data is checked by agentd alone, not here, because of its schema: %s", why)
        self._said.add(why)

"""Contract files, read as agentd reads them: of what stands there plainly, only true and false are booleans, and dates and times are texts."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from . import wire
from .errors import AgentdError

# Aliases could name exponentially many values.
MAX_VALUES = 200_000

_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = ("", "~", "null", "Null", "NULL")
_INTEGER = re.compile(
    r"[-+]?(?:0[xX](?P<hexadecimal>[0-9a-fA-F_]+)|0[bB](?P<binary>[01_]+)|0[oO]?(?P<octal>[0-7_]+)|(?P<decimal>[0-9][0-9_]*))"
)
_BASES = {"hexadecimal": 16, "binary": 2, "octal": 8, "decimal": 10}
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9][0-9_]*)?")
_NOT_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_PLAIN, _TAG = "plain", "tag:yaml.org,2002:"


def read(path: Path) -> dict[str, Any]:
    """The contract in a JSON or YAML file. Raises AgentdError: config, for what a YAML file of agentd cannot be."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return json.loads(text)
    try:
        import yaml
    except ImportError:
        raise ImportError(f"{path} needs the package pyyaml; or use JSON: agentd contracts show TYPE -o json") from None
    return _File(path).read(yaml, text)


class _File:
    def __init__(self, path: Path):
        self._path, self._values = path, 0

    def read(self, yaml: Any, text: str) -> Any:
        class Loader(yaml.SafeLoader):
            def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
                return _PLAIN if kind is yaml.ScalarNode and implicit[0] else super().resolve(kind, value, implicit)

        self._scalar_node, self._mapping_node = yaml.ScalarNode, yaml.MappingNode
        try:
            root = yaml.compose(text, Loader)
        except (yaml.YAMLError, RecursionError) as e:
            raise AgentdError("config", f"{self._path}: not valid YAML: {e}") from e
        if root is None:
            raise AgentdError("config", f"{self._path}: the file is empty")
        return self._value(root)

    def _value(self, node: Any, depth: int = 0) -> Any:
        self._values += 1
        if depth > wire.MAX_DEPTH or self._values > MAX_VALUES:
            raise self._fault(node, f"a file has at most {MAX_VALUES} values, nested at most {wire.MAX_DEPTH} levels deep; aliases count as what they name")
        if isinstance(node, self._scalar_node):
            return self._scalar(node)
        if not isinstance(node, self._mapping_node):
            return [self._value(item, depth + 1) for item in node.value]
        members: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, self._scalar_node) or key.tag == _PLAIN and key.value in (*_NULLS, "<<"):
                raise self._fault(key, "want a key that is text; merge keys (<<) are not supported")
            if key.value in members:
                raise self._fault(key, f"key {key.value!r} is set twice")
            members[key.value] = self._value(value, depth + 1)
        return members

    def _scalar(self, node: Any) -> Any:
        text = node.value
        match node.tag.removeprefix(_TAG):
            case "str" | "timestamp":
                return text
            case "null":
                return None
            case "plain" if text in _NULLS:
                return None
            case "plain" | "bool" if text in _BOOLEANS:
                return _BOOLEANS[text]
            case "plain" | "int" | "float" if _INTEGER.fullmatch(text) or _FLOAT.fullmatch(text):
                return self._number(node)
            case "plain" if text != "<<" and not _NOT_JSON.fullmatch(text):
                return text
        raise self._fault(node, f"{text!r} has no form in JSON")

    def _number(self, node: Any) -> Any:
        text = node.value
        try:
            if found := _INTEGER.fullmatch(text):
                digits = found[found.lastgroup]
                return int(digits.removeprefix("_"), _BASES[found.lastgroup]) * (-1 if text[0] == "-" else 1)
            number = float(text)
        except ValueError:  # such as 1_
            raise self._fault(node, f"{text} is not a number of JSON") from None
        return text if math.isinf(number) else number

    def _fault(self, node: Any, why: str) -> AgentdError:
        return AgentdError("config", f"{self._path}:{node.start_mark.line + 1}:{node.start_mark.column + 1}: {why}")

"""What goes wrong, by the codes of docs/wire.md#errors."""

from __future__ import annotations

from typing import Any


class AgentdError(Exception):
    """An error with a code. retryable says that the same request may succeed later."""

    def __init__(self, code: str, message: str, *, retryable: bool = False, faults: list[dict[str, Any]] | None = None):
        super().__init__(f"{code}: {message}{_listed(faults or [])}")
        self.code, self.message, self.retryable, self.faults = code, message, retryable, faults or []

    @classmethod
    def of(cls, data: dict[str, Any]) -> AgentdError:
        """The error that the data of a sys.<type>.error event describes. Services of others may leave out the code."""
        faults = data.get("faults")
        return cls(
            str(data.get("code") or data.get("errorName") or "internal"), str(data.get("errorMessage") or ""),
            retryable=data.get("retryable") is True, faults=[f for f in faults if isinstance(f, dict)] if isinstance(faults, list) else [],
        )

    def data(self) -> dict[str, Any]:
        """The data of a sys.<type>.error event."""
        data: dict[str, Any] = {
            "errorName": self.code, "errorMessage": self.message, "errorStack": None, "code": self.code, "retryable": self.retryable,
        }
        return data | {"faults": self.faults} if self.faults else data


def _listed(faults: list[dict[str, Any]]) -> str:
    return "".join(f"; {f.get('path')}: expected {f.get('expected')}, got {f.get('got')}" for f in faults)


class ToolError(AgentdError):
    """Raised by a handler: the call failed, and the model may read why. Of other exceptions it only learns that there was one."""

    def __init__(self, message: str, *, retryable: bool = False, code: str = "tool_failed"):
        super().__init__(code, message, retryable=retryable)


class Unavailable(AgentdError):
    """Nobody answers: the server cannot be reached, a stream or consumer does not exist, or no worker serves the agent. It is not
    retryable where the connection was closed here."""

    def __init__(self, message: str, *, retryable: bool = True):
        super().__init__("unavailable", message, retryable=retryable)


class RunFailed(AgentdError):
    """A run ended with an error. reason says why it ended, as reason:code."""

    def __init__(self, run: str, error: AgentdError, reason: str):
        super().__init__(error.code, f"run {run} ended: {error.message}", retryable=error.retryable, faults=error.faults)
        self.run, self.reason = run, reason

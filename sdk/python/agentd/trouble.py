"""What a service says of calls that do not come."""

from __future__ import annotations

import logging

log = logging.getLogger("agentd.service")


class Trouble:
    """Why no calls of a consumer come: said once, and again when the reason is another one, or when they come again."""

    def __init__(self, consumer: str):
        self.consumer, self.reason = consumer, ""

    def missing(self) -> None:
        self._say(logging.ERROR, f"the consumer {self.consumer} does not exist: run agentd provision, with a configuration that has the contract")

    def failed(self, error: Exception) -> None:
        self._say(logging.WARNING, f"no calls of the consumer {self.consumer} come: {reason(error)}")

    def refused(self, status: int) -> None:
        self._say(logging.WARNING, f"the server answered a pull of the consumer {self.consumer} with {status}")

    def over(self) -> None:
        if self.reason:
            log.info("calls of the consumer %s come again", self.consumer)
        self.reason = ""

    def _say(self, level: int, reason: str) -> None:
        if reason != self.reason:
            log.log(level, "%s", reason)
        self.reason = reason


def reason(error: Exception) -> str:
    """What an error says; a TimeoutError has no text of its own."""
    return str(error) or "the server does not answer"

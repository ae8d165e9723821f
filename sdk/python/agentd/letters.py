"""Dead letters: what a service is given that is not a call (docs/wire.md#dead-letters)."""

from __future__ import annotations

import json
import logging

from .errors import AgentdError, Unavailable
from .transport import Headers, Message, Transport

log = logging.getLogger("agentd.service")

# The server refuses to store a second message on a subject with this code.
WRONG_LAST_SEQUENCE = 10071
# How many bytes of the reason in words are told.
MOST_DETAIL = 2048
_OURS = ("agentd-reason", "agentd-detail", "agentd-subject", "agentd-omitted", "agentd-settled")


async def send(transport: Transport, root: str, service: str, message: Message, error: AgentdError) -> bool:
    """Stores a delivery that the service, as <domain>.<type>, cannot handle. False leaves it to another delivery, as Unavailable does. Where the
    user may not write it, and where nothing says which message of which stream it is, the log alone tells of it."""
    delivered = _delivered(message.reply)
    if delivered is None:
        return True
    subject = ".".join((root, "dlq", error.code, *delivered, service))
    why = {"agentd-reason": error.code, "agentd-detail": _line(str(error)), "agentd-subject": message.subject}
    own = {name: values for name, values in message.headers.items() if not name.lower().startswith(("nats-", *_OURS))}
    try:
        try:
            return await _store(transport, subject, message.data, own | why)
        except AgentdError as e:
            if e.code != "too_large":
                raise
            return await _store(transport, subject, b"", why | {"agentd-omitted": "true"})
    except AgentdError as e:
        if isinstance(e, Unavailable) or e.code != "permission_denied":
            raise
        log.warning("it is passed over, as this user may not store dead letters: %s", e.message)
        return True


async def _store(transport: Transport, subject: str, data: bytes, headers: Headers) -> bool:
    headers = {**headers, "Nats-Expected-Last-Subject-Sequence": "0"}
    error = json.loads((await transport.request(subject, data, headers)).data).get("error")
    if not error or error.get("err_code") == WRONG_LAST_SEQUENCE:
        return True  # or it was stored by an earlier delivery
    log.error("the dead letter %s is refused: %s", subject, error.get("description"))
    return False


def _delivered(reply: str) -> tuple[str, str] | None:
    """The stream, in lower case, and the sequence in it that the reply subject of a delivery tells: $JS.ACK.<stream>.<consumer>.<delivered>.
    <sequence>.<…>.<…>.<…>, of later servers with the domain and the account before the stream."""
    tokens = reply.split(".")
    if tokens[:2] != ["$JS", "ACK"] or len(tokens) < 9:
        return None
    at = 2 if len(tokens) == 9 else 4
    return tokens[at].lower(), tokens[at + 3]


def _line(text: str) -> str:
    encoded = " ".join(text.split()).encode(errors="replace")
    return encoded.decode() if len(encoded) <= MOST_DETAIL else encoded[:MOST_DETAIL].decode(errors="ignore") + "…"

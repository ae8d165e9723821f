"""agentd for Python: serve contracts, and start, follow and answer the runs of agents.

The protocol is docs/wire.md; nothing but the standard library is needed.
"""

from .answers import Outcome
from .client import Client, Live, Result, Run
from .errors import AgentdError, RunFailed, ToolError, Unavailable
from .service import Call, Service
from .transport import Message, Transport, connect

__all__ = [
    "AgentdError", "Call", "Client", "Live", "Message", "Outcome", "Result", "Run", "RunFailed", "Service", "ToolError", "Transport",
    "Unavailable", "connect",
]

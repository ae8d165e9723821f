"""A client for `agentd conformance --client`: does what each line of its input asks of sdk/python, and prints what comes of it."""

import asyncio
import json
import sys
from typing import Any

from agentd import AgentdError, Client, Run, connect


def tell(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


async def do(client: Client, request: dict[str, Any]) -> dict[str, Any]:
    kind, run = request.pop("do"), Run(**request.pop("run", {"agent": "", "name": ""}))
    match kind:
        case "start":
            access = request.pop("accesscontrol", None)
            run = await client.start(request.pop("agent"), request.pop("data"), access_control=access, **request)
            return {"run": {"agent": run.agent, "name": run.name, "init": run.init}}
        case "status":
            return {"status": await client.status(run)}
        case "list":
            return {"runs": [r["run"] async for r in client.list(request["agent"], request.get("status", ""))]}
        case "wait":
            result = await client.wait(run)
            return {"result": {"type": result.type, "data": result.data, "reason": result.reason}}
        case "follow":
            after = request.get("after", {"rev": 0, "i": 0})
            async for live in client.follow(run, (after["rev"], after["i"])):
                tell({"live": {"type": live.type, "rev": live.mark[0], "i": live.mark[1], "ephemeral": live.ephemeral}})
        case "send":
            await client.send(run, request["text"])
        case "cancel":
            await client.cancel(run, request.get("reason", ""))
        case "answer":
            await client.answer(run, request["text"], call=request.get("call", ""), end=request.get("end", False))
        case "decide":
            await client.decide(run, request.pop("decision"), request=request.pop("call", ""), **request)
        case _:
            return {"unsupported": True}
    return {"done": True}


async def main() -> None:
    transport = await connect()
    client = Client(transport)
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            tell(await do(client, json.loads(line)))
        except AgentdError as e:
            tell({"error": {"code": e.code, "message": e.message, "faults": e.faults}})
    await transport.close()


asyncio.run(main())

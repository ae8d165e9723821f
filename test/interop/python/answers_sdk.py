"""Starts a run of the agent desk with sdk/python, answers its question with data, decides on its calls one by one, and prints what it sees as JSON
lines."""

import asyncio
import json

from agentd import AgentdError, Client, Run, connect


def say(what, value):
    print(json.dumps([what, value]), flush=True)


async def until_asked(client: Client, run: Run, kind: str):
    while True:
        try:
            for asked in await client.asked(run):
                if asked["type"] == kind:
                    return asked["asked"]
        except AgentdError as e:
            if e.code != "unknown_run":
                raise
        await asyncio.sleep(0.02)


async def main() -> None:
    transport = await connect()
    client = Client(transport)
    run = await client.start("desk", {"message": "hello"})
    await until_asked(client, run, "agentd.question.ask")
    await client.answer(run, data={"month": "May"})
    first, second = (await until_asked(client, run, "agentd.permission.request"))["calls"]
    denied = {"call": second["call"], "decision": "deny", "reason": "too far"}
    await client.decide(run, "allow", calls=[{"call": first["call"]}, denied])
    result = await client.wait(run, timeout=60)
    for told in result.data["response"].split("\n"):
        say("result", told)
    say("again", await client.wait(run, timeout=60) == result)  # nobody tells of it any more: it is in its stream
    await transport.close()


asyncio.run(main())

"""Answers and decides what a run of the agent desk asks with sdk/python, and prints what the run makes of it as JSON lines."""

import asyncio
import json
from dataclasses import asdict

from agentd import AgentdError, Client, Outcome, Run, connect


def say(what: str, outcome: Outcome) -> None:
    print(json.dumps([what, {name: value for name, value in asdict(outcome).items() if value}]), flush=True)


async def until_asked(client: Client, run: Run, kind: str) -> None:
    while True:
        try:
            if any(asked["type"] == kind for asked in await client.asked(run)):
                return
        except AgentdError as e:
            if e.code != "unknown_run":
                raise
        await asyncio.sleep(0.02)


async def main() -> None:
    transport = await connect()
    client = Client(transport)
    run = await client.start("desk", {"message": "hello"}, require=["weather_forecast"])
    await until_asked(client, run, "agentd.question.ask")
    answer = await client.answer(run, "in May")
    say("answered", await client.outcome(run, answer, timeout=60))
    say("somebody else's", await client.outcome(run, answer + "x", timeout=60))
    await until_asked(client, run, "agentd.permission.request")
    say("for the run", await client.outcome(run, await client.decide(run, "allow", scope="run+tool"), timeout=60))
    say("denied", await client.outcome(run, await client.decide(run, "deny"), timeout=60))
    await client.wait(run, timeout=60)
    say("later", await client.outcome(run, answer))
    say("of no answer", await client.outcome(run, "another"))
    await transport.close()


asyncio.run(main())

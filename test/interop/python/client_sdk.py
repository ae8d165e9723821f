"""Starts, follows, answers, decides and cancels runs of the agent desk with sdk/python, and prints what it sees as JSON lines."""

import asyncio
import json

from agentd import AgentdError, Client, RunFailed, Unavailable, connect


def say(what, value):
    print(json.dumps([what, value]), flush=True)


async def until_asked(client, run):
    while True:
        try:
            if asked := await client.asked(run):
                return asked[0]
        except AgentdError as e:
            if e.code != "unknown_run":
                raise
        await asyncio.sleep(0.02)


async def main():
    transport = await connect()
    client = Client(transport)
    first = await client.start("desk", {"message": "hello"}, key="trip-1")
    say("same run", first == await client.start("desk", {"message": "hello"}, key="trip-1"))
    question = await until_asked(client, first)
    say("asked", question["asked"]["question"])
    following = asyncio.create_task(milestones(client, first))
    await client.answer(first, "in May")
    result = await client.wait(first, timeout=60)
    say("result", [result.type, result.data, result.reason])
    say("milestones", await following)
    say("again", await milestones(client, first) == await following)

    held = await client.start("desk", {"message": "hello"}, require=["weather_forecast"])
    await until_asked(client, held)
    await client.answer(held, "in May")
    while (request := await until_asked(client, held))["type"] != "agentd.permission.request":
        await asyncio.sleep(0.02)
    say("permission for", request["asked"]["tool"])
    try:
        await client.decide(held, "allow", args_sha256="0" * 64)
    except AgentdError as e:
        say("other arguments", e.code)
    await client.decide(held, "deny", reason="too far")
    say("denied", (await client.wait(held, timeout=60)).reason)

    planned = await client.start("planner", {"message": "hello"})
    plan = await until_asked(client, planned)
    say("plan", [plan["type"], plan["asked"]["args"]["steps"][0]["text"]])
    await client.decide(planned, "allow", args={"steps": [{"step": 1, "text": "Get the weather in Rome", "tool": "weather_forecast"}]})
    async for live in client.follow(planned):
        if live.type == "plan.created" and live.data.get("edited"):
            say("edited", live.data["steps"][0]["text"])
    say("carried out", (await client.wait(planned, timeout=60)).reason)

    ended = await client.start("desk", {"message": "hello"}, name="the third")
    await until_asked(client, ended)
    await client.cancel(ended, "changed my mind")
    try:
        await client.wait(ended, timeout=60)
    except RunFailed as e:
        say("cancelled", [e.code, e.reason])
    say("done", sorted([run["run"] async for run in client.list("desk", "done")])[-1])
    try:
        await client.status(type(first)("nobody", "x"))
    except Unavailable as e:
        say("no such agent", e.code)
    try:
        await client.wait(await client.start("desk", {"message": 7}), timeout=60)
    except RunFailed as e:
        say("refused", [e.code, e.faults])
    await transport.close()


async def milestones(client, run):
    told = [live.type async for live in client.follow(run) if not live.ephemeral]
    return [kind for kind in told if kind.startswith(("run.", "call.", "model."))]


asyncio.run(main())

"""Serves weather.forecast with sdk/python, with answers that cannot be sent. It prints each city that a handler is called with."""

import asyncio
import datetime
import sys

from agentd import Service, ToolError

service = Service(sys.argv[1], hear_voids=False)


@service.handle()
async def forecast(call, data):
    print("CALLED", data["city"], flush=True)
    await asyncio.sleep(0.5)  # all are in hand
    match data["city"]:
        case "Large":
            return {"text": "x" * (2 << 20)}
        case "LargeError":
            raise ToolError("x" * (2 << 20))
        case "Cancelled":
            other = asyncio.create_task(asyncio.sleep(60))
            other.cancel()
            await other
        case "Strange":
            return {"text": "sunny", "when": datetime.datetime.now()}
        case "NaN":
            return {"text": "sunny", "degrees": float("nan")}
        case "Nothing":
            return None
        case "List":
            return ["sunny"]
        case "Text":
            return "sunny"
        case "Cycle":
            cycle = {"text": "sunny"}
            cycle["in"] = cycle
            return cycle
        case "Surrogate":
            return {"text": "\ud800"}
        case "Wide":
            return {"text": "sunny", "rows": [{"degrees": i} for i in range(10_064)]}
        case "Deep":
            deep = {"text": "sunny"}
            for _ in range(64):
                deep = {"text": "sunny", "in": deep}
            return deep
    return {"text": "sunny in " + data["city"]}


service.run()

"""Serves weather.forecast with sdk/python."""

import asyncio
import sys

from agentd import Service, ToolError

service = Service(sys.argv[1], hear_voids=False)


@service.handle()
async def forecast(call, data):
    if data["city"] == "Atlantis":
        raise ToolError("the weather is unknown in Atlantis")
    if data["city"] == "Limbo":
        await asyncio.Event().wait()
    if data["city"] == "Babel":
        return {"text": "rain " * (1 << 19)}
    return {"text": "sunny in " + data["city"]}


service.run()

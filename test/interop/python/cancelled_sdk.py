"""Serves weather.forecast with sdk/python, as one of several tasks of a program. The first call has the program end, which cancels them."""

import asyncio
import sys

from agentd import Service, connect

service = Service(sys.argv[1], hear_voids=False)
called = asyncio.Event()


@service.handle()
async def forecast(call, data):
    called.set()
    await asyncio.sleep(60)
    return {"text": "too late in " + data["city"]}


async def main():
    transport = await connect()
    serving = asyncio.create_task(service.serve(transport))
    await called.wait()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await transport.close()


asyncio.run(main())

"""A connection to a server that is made up."""

import asyncio
import unittest

from agentd.errors import AgentdError
from agentd.nats import Connection


class Sizes(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        """A server that takes messages of 100 bytes, and keeps the lines that come."""
        self.lines = []

        async def serve(reader, writer):
            self.serving = asyncio.current_task()
            writer.write(b'INFO {"max_payload": 100}\r\n')
            while line := await reader.readline():
                self.lines.append(line)
                if line == b"PING\r\n":
                    writer.write(b"PONG\r\n")
            writer.close()

        self.server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self.connection = await Connection.open("127.0.0.1:%d" % self.server.sockets[0].getsockname()[1])

    async def asyncTearDown(self):
        await self.connection.close()
        await self.serving
        self.server.close()

    async def test_what_the_server_does_not_take_is_not_sent(self):
        headers = {"a": "b"}  # with what is around it 18 bytes
        for size, given in ((101, None), (83, headers)):
            with self.subTest(size=size), self.assertRaises(AgentdError) as caught:
                await self.connection.request("large", b"x" * size, given)
            self.assertEqual((caught.exception.code, caught.exception.retryable), ("too_large", False))
        await self.connection.publish("small", b"x" * 100)
        await self.connection.publish("small", b"x" * 82, headers)
        async with asyncio.timeout(5):
            while sum(line.startswith((b"PUB small", b"HPUB small")) for line in self.lines) < 2:
                await asyncio.sleep(0.001)
        self.assertFalse([line for line in self.lines if b"large" in line])


if __name__ == "__main__":
    unittest.main()

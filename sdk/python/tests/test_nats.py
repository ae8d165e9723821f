"""A connection to a server that is made up."""

import asyncio
import logging
import unittest

from agentd.errors import AgentdError
from agentd.nats import Connection


class Connected(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        """A server that takes messages of 100 bytes, refuses a subscription, and keeps the lines that come on each connection."""
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)
        self.connections, self.greeted = [], asyncio.Event()
        self.greeted.set()

        async def serve(reader, writer):
            lines = []
            self.connections.append((asyncio.current_task(), writer, lines))
            writer.write(b'INFO {"max_payload": 100}\r\n')
            while line := await reader.readline():
                lines.append(line)
                if line.startswith(b"SUB refused"):
                    writer.write(b"-ERR 'Permissions Violation for Subscription to \"refused\"'\r\n")
                if line == b"PING\r\n":
                    await self.greeted.wait()
                    writer.write(b"PONG\r\n")
            writer.close()

        self.server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self.connection = await Connection.open("127.0.0.1:%d" % self.server.sockets[0].getsockname()[1])

    async def asyncTearDown(self):
        self.greeted.set()
        await self.connection.close()
        for task, _, _ in self.connections:
            await task
        self.server.close()

    async def told(self, number, *beginnings):
        """Waits until lines that begin so have come on a connection."""
        async with asyncio.timeout(5):
            while len(self.connections) <= number or not all(
                any(line.startswith(b) for line in self.connections[number][2]) for b in beginnings
            ):
                await asyncio.sleep(0.001)

    async def test_what_the_server_does_not_take_is_not_sent(self):
        headers = {"a": "b"}  # with what is around it 18 bytes
        for size, given in ((101, None), (83, headers)):
            with self.subTest(size=size), self.assertRaises(AgentdError) as caught:
                await self.connection.request("large", b"x" * size, given)
            self.assertEqual((caught.exception.code, caught.exception.retryable), ("too_large", False))
        await self.connection.publish("small", b"x" * 100)
        await self.connection.publish("small", b"x" * 82, headers)
        await self.told(0, b"PUB small", b"HPUB small")
        self.assertFalse([line for line in self.connections[0][2] if b"large" in line])

    async def test_the_next_server_is_told_of_every_subscription(self):
        await self.connection.subscribe("before")
        await self.connection.subscribe("refused")
        await self.told(0, b"SUB before", b"SUB refused")
        self.greeted.clear()
        self.connections[0][1].close()
        await self.told(1, b"PING")
        await self.connection.subscribe("meanwhile")
        self.greeted.set()
        async with asyncio.timeout(5):
            await self.connection.publish("after")
        await self.told(1, b"SUB before", b"SUB refused", b"SUB meanwhile", b"PUB after")


if __name__ == "__main__":
    unittest.main()

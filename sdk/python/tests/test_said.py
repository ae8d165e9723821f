"""What is said of a connection that is lost, and of calls that do not come."""

import asyncio
import unittest
from unittest import mock

from agentd import nats
from agentd.errors import Unavailable
from agentd.trouble import Trouble as Said


class Trouble(unittest.TestCase):
    def test_is_said_once(self):
        trouble = Said("c")
        with self.assertLogs("agentd.service", "INFO") as said:
            for error in (TimeoutError(), TimeoutError(), Unavailable("the stream is away")):
                trouble.failed(error)
            trouble.over()
            trouble.over()
            trouble.failed(TimeoutError())
        self.assertEqual([line.partition("service:")[2] for line in said.output], [
            "no calls of the consumer c come: the server does not answer",
            "no calls of the consumer c come: unavailable: the stream is away",
            "calls of the consumer c come again",
            "no calls of the consumer c come: the server does not answer",
        ])


class Lost(unittest.IsolatedAsyncioTestCase):
    async def said(self, closes, send=None):
        """What a connection says of a server that answers its first ping, and then closes it or no longer answers. send is done to it before."""
        over = asyncio.Event()

        async def serve(reader, writer):
            writer.write(b"INFO {}\r\n")
            while await reader.readline() != b"PING\r\n":
                pass
            writer.write(b"PONG\r\n")
            if not closes:
                await (over.wait() if send else reader.read())
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with self.assertLogs("agentd.nats", "INFO") as said:
            connection = await nats.Connection.open(f"nats://ann:secret@127.0.0.1:{port}")
            sending = asyncio.create_task(send(connection)) if send else None
            async with asyncio.timeout(60):
                while len(said.output) < 2:
                    await asyncio.sleep(0)
            if sending:
                sending.cancel()
            await connection.close()
        over.set()
        server.close()
        self.assertEqual(said.output[0], f"INFO:agentd.nats:connected to NATS at 127.0.0.1:{port}")
        return said.output[1].partition("lost: ")[2]

    async def test_closed(self):
        self.assertEqual(await self.said(closes=True), "the server closed it")

    async def test_silent(self):
        with mock.patch.object(nats, "PING_EVERY", 0.01):
            self.assertEqual(await self.said(closes=False), "the server does not answer")

    async def test_silent_and_taking_nothing(self):
        async def send(connection):
            while True:
                await connection.publish("much", b"x" * 2**20)

        with mock.patch.object(nats, "PING_EVERY", 0.01):
            self.assertEqual(await self.said(closes=False, send=send), "the server does not answer")

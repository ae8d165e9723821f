"""A connection to a server that is made up."""

import asyncio
import logging
import unittest

from agentd import Client, Run
from agentd.errors import AgentdError, Unavailable
from agentd.nats import Connection, _login, header_block, parse_headers


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
                if b" forbidden " in line:
                    writer.write(b"-ERR 'Permissions Violation for Publish to \"forbidden\"'\r\n")
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
        async with asyncio.timeout(60):
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
        async with asyncio.timeout(60):
            await self.connection.publish("after")
        await self.told(1, b"SUB before", b"SUB refused", b"SUB meanwhile", b"PUB after")

    async def test_who_may_not_subscribe_is_told_so(self):
        subscription = await self.connection.subscribe("refused")
        with self.assertRaises(AgentdError) as caught:
            await subscription.next(5)
        self.assertEqual((type(caught.exception), caught.exception.code), (AgentdError, "permission_denied"))
        self.assertIn("subscribe to refused", caught.exception.message)

    async def test_who_gives_up_following_while_the_connection_is_lost_leaves_nothing(self):
        self.greeted.clear()
        self.connections[0][1].close()
        await self.told(1, b"PING")  # it is there again, and not yet ready
        following = asyncio.create_task(self.told_of(Client(self.connection), Run("desk", "trip", "init")))
        while len(self.connection._subscriptions) < 2:
            await asyncio.sleep(0)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        self.assertEqual((self.connection._subscriptions, self.connection._reconnected), ({}, []))
        self.greeted.set()
        await self.connection._ready.wait()

    async def test_what_uses_a_closed_connection_is_told_so(self):
        client, run = Client(self.connection), Run("desk", "trip", "init")
        waiting = [asyncio.create_task(do) for do in (
            client.wait(run), client.wait(Run("desk", "trip")), self.told_of(client, run), self.connection.request("never", timeout=60),
            (await self.connection.subscribe("quiet")).next(),
        )]
        stream = await self.connection.subscribe("iterated")
        await self.told(0, b"SUB agentd.done.desk", b"SUB agentd.stream.desk", b"SUB iterated", b"PUB never", b"PUB agentd.get")
        await self.connection.close()
        self.assertEqual([message async for message in stream], [])
        for do in (
            *waiting, self.connection.publish("after"), self.connection.request("after"), self.connection.subscribe("after"),
            client.wait(run), client.wait(Run("desk", "trip")), self.told_of(client, run), client.start("desk", {}), client.cancel(run),
        ):
            with self.subTest(do=do):
                with self.assertRaises(Unavailable) as caught:
                    async with asyncio.timeout(60):
                        await do
                self.assertFalse(caught.exception.retryable)

    async def test_what_is_sent_as_the_connection_is_lost_is_lost(self):
        self.connection._writer.transport.abort()
        await self.connection.publish("lost")
        self.connection._writer.transport.abort()
        with self.assertRaises(Unavailable) as caught:
            await self.connection.request("lost", timeout=60)
        self.assertTrue(caught.exception.retryable)

    async def told_of(self, client, run):
        async for _ in client.follow(run):
            pass

    async def test_what_the_server_does_not_answer_is_unavailable(self):
        with self.assertRaises(Unavailable) as caught:
            await self.connection.request("never", timeout=0.01)
        self.assertTrue(caught.exception.retryable)
        with self.assertRaises(TimeoutError):  # of whoever asks, not ours
            async with asyncio.timeout(0.01):
                await self.connection.request("never")

    async def test_what_the_server_forbids_is_an_error_of_ours(self):
        requests = [asyncio.create_task(self.connection.request("forbidden")) for _ in range(2)]
        for answer in await asyncio.gather(*requests, return_exceptions=True):
            self.assertEqual((type(answer), answer.code), (AgentdError, "permission_denied"))


class Headers(unittest.TestCase):
    def test_have_all_their_values(self):
        block = b"NATS/1.0\r\nA: 1\r\nA: 2\r\nB: 3\r\n\r\n"
        self.assertEqual(header_block({"A": ["1", "2"], "B": "3"}), block)
        self.assertEqual(parse_headers(block), ({"A": ["1", "2"], "B": ["3"]}, 0))

    def test_can_be_sent_as_they_came(self):
        headers, status = parse_headers(b"NATS/1.0 503\r\nA: 1\nB: 2\rC: 3\r\n\r\n")
        self.assertEqual((headers, status), ({"A": ["1"], "B": ["2"], "C": ["3"]}, 503))
        self.assertEqual(header_block(headers), b"NATS/1.0\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n")
        for name, value in (("A", "1\n"), ("A\r", "1")):
            with self.assertRaises(ValueError):
                header_block({name: [value]})


class Login(unittest.IsolatedAsyncioTestCase):
    async def test_inboxes_are_those_of_its_user_and_root(self):
        async def serve(reader, writer):
            writer.write(b"INFO {}\r\n")
            await reader.readuntil(b"PING\r\n")
            writer.write(b"PONG\r\n")
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        for options, inbox in (
            ({}, "_INBOX."), ({"user": "ann"}, "_INBOX_agentd_ann."), ({"user": "ann", "root": "acme"}, "_INBOX_acme_ann."),
            ({"user": "ann", "inbox_prefix": "_INBOX_other"}, "_INBOX_other."),
        ):
            connection = await Connection.open("127.0.0.1:%d" % server.sockets[0].getsockname()[1], **options)
            self.assertTrue(connection.new_inbox().startswith(inbox), (options, connection.new_inbox()))
            await connection.close()
        server.close()

    def test_is_of_the_url_where_none_is_given(self):
        for server, given, want in (
            ("nats://h", ("", "", ""), ("", "", "")),
            ("nats://s%40cret@h", ("", "", ""), ("", "", "s@cret")),
            ("nats://ann:p%3Aw@h", ("", "", ""), ("ann", "p:w", "")),
            ("nats://ann:@h", ("", "", ""), ("ann", "", "")),
            ("nats://ann@h", ("", "pw", ""), ("ann", "pw", "")),
            ("nats://ann:pw@h", ("bob", "other", ""), ("bob", "other", "")),
            ("nats://ann:pw@h", ("", "", "token"), ("", "", "token")),
        ):
            with self.subTest(server=server, given=given):
                self.assertEqual(_login(server, *given), want)

    async def test_is_not_told_where_the_address_is_none(self):
        for url in (
            "nats://ann:s3/cret@host", "nats://ann:3/cret@host", "nats://ann:3?cret@host", "nats://ann:3#cret@host", "nats://ann:cret@host:port",
            "nats://ann:cret@host:70000", "nats://ann:cret@", "nats://ann:cret@[::1", "nats://other, nats://ann:cret@host:0", "ann:cret//@host", "",
        ):
            with self.subTest(url=url):
                with self.assertRaises(AgentdError) as caught:
                    await Connection.open(url, timeout=0.1)
                self.assertEqual(caught.exception.code, "config")
                for secret in ("ann", "cret", "s3"):
                    self.assertNotIn(secret, str(caught.exception))
                self.assertIsNone(caught.exception.__cause__)

    async def refused(self, greeting):
        """The error of a login at a server that says this, and then nothing."""

        async def serve(reader, writer):
            writer.write(greeting)
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        with self.assertRaises(AgentdError) as caught:
            await Connection.open("nats://ann:s3cret@127.0.0.1:%d" % server.sockets[0].getsockname()[1], timeout=0.1)
        server.close()
        self.assertNotIn("s3cret", str(caught.exception))
        return caught.exception.code

    async def test_is_in_no_error(self):
        self.assertEqual(await self.refused(b"INFO {}\r\n"), "unavailable")
        self.assertEqual(await self.refused(b"INFO {}\r\n-ERR 'Authorization Violation'\r\n"), "permission_denied")


if __name__ == "__main__":
    unittest.main()

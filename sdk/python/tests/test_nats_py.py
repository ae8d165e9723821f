"""A connection of nats-py that is made up."""

import asyncio
import sys
import types
import unittest
from unittest import mock

from agentd import AgentdError, Unavailable
from agentd.nats_py import Adapter


def package():
    """The modules of nats-py that are used, with its errors."""
    errors = types.ModuleType("nats.errors")
    for name in ("TimeoutError", "BadSubscriptionError", "ConnectionClosedError", "NoRespondersError"):
        setattr(errors, name, type(name, (Exception,), {}))
    nats = types.ModuleType("nats")
    nats.errors = errors
    return {"nats": nats, "nats.errors": errors}


class Message:
    subject, reply, data = "there", "", b"data"

    def __init__(self, headers=None):
        self.headers = headers


class Subscription:
    def __init__(self):
        self.messages, self.timeouts = asyncio.Queue(), []

    async def next_msg(self, timeout):
        self.timeouts.append(timeout)
        message = await self.messages.get()
        if isinstance(message, Exception):
            raise message
        return message

    async def unsubscribe(self):
        pass


class Client:
    max_payload = 100

    def __init__(self):
        self.sent, self.subscriptions, self.answers = [], [], asyncio.Queue()

    async def subscribe(self, subject):
        self.subscriptions.append(Subscription())
        return self.subscriptions[-1]

    async def request(self, subject, data, timeout, headers):
        self.sent.append((subject, headers))
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Adapted(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        modules = package()
        self.errors = modules["nats.errors"]
        patched = mock.patch.dict(sys.modules, modules)
        patched.start()
        self.addCleanup(patched.stop)

    async def asyncSetUp(self):
        self.client = Client()
        self.adapter = Adapter(self.client)

    async def refused(self, waiting, text):
        """How something ends that waits while the connection has an error."""
        task = asyncio.create_task(waiting)
        await asyncio.sleep(0)
        await self.adapter.failed(Exception(text))
        with self.assertRaises(AgentdError) as caught:
            async with asyncio.timeout(5):
                await task
        return caught.exception

    async def test_who_may_not_subscribe_is_told_so(self):
        subscription, other = await self.adapter.subscribe("agentd.stream.Desk"), await self.adapter.subscribe("agentd.stream")
        text = 'nats: permissions violation for subscription to "agentd.stream.desk"'  # nats-py writes it so
        for _ in range(2):
            error = await self.refused(subscription.next(5), text)
            self.assertEqual((error.code, error.message), ("permission_denied", "the NATS server does not let this user subscribe to agentd.stream.Desk"))
        self.client.subscriptions[1].messages.put_nowait(Message())
        self.assertEqual((await other.next(5)).data, b"data")
        await subscription.unsubscribe()
        await other.unsubscribe()
        self.assertEqual(self.adapter._refusals, set())

    async def test_who_may_not_publish_is_told_so(self):
        error = await self.refused(self.adapter.request("agentd.get.desk.Ann"), 'nats: permissions violation for publish to "agentd.get.desk.ann"')
        self.assertEqual((error.code, error.message), ("permission_denied", "the NATS server does not let this user publish on agentd.get.desk.Ann"))
        self.assertEqual(self.adapter._refusals, set())

    async def test_what_goes_wrong_else_is_an_error_of_ours(self):
        for name, retryable in (("NoRespondersError", True), ("TimeoutError", True), ("ConnectionClosedError", False)):
            self.client.answers.put_nowait(getattr(self.errors, name)())
            with self.subTest(name=name), self.assertRaises(Unavailable) as caught:
                await self.adapter.request("there")
            self.assertEqual(caught.exception.retryable, retryable)
        subscription = await self.adapter.subscribe("there")
        for name, wanted in (("TimeoutError", TimeoutError), ("BadSubscriptionError", Unavailable), ("ConnectionClosedError", Unavailable)):
            self.client.subscriptions[0].messages.put_nowait(getattr(self.errors, name)())
            with self.subTest(name=name), self.assertRaises(wanted):
                await subscription.next(7)
        self.assertEqual(self.client.subscriptions[0].timeouts, [7, 7, 7])

    async def test_headers_and_status(self):
        self.client.answers.put_nowait(Message({"A": "1", "Status": "404"}))
        answer = await self.adapter.request("there", headers={"B": "2", "C": ["3", "4"]})
        self.assertEqual((answer.header("A"), answer.status, answer.data), ("1", 404, b"data"))
        self.assertEqual(self.client.sent, [("there", {"B": "2", "C": "4"})])


if __name__ == "__main__":
    unittest.main()

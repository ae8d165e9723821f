"""A service on a connection that is made up."""

import asyncio
import contextlib
import json
import logging
import unittest

from agentd.errors import AgentdError, ToolError, Unavailable
from agentd.service import Service
from agentd.transport import Message

CALL = "c1-0-" + "a" * 26
DELIVERED = f"agentd.out.local.weather_forecast.desk.253.run.{CALL}"
CONTRACT = {"uri": "#/weather/forecast", "type": "weather.forecast", "versions": {"1.0.0": {
    "accepts": {}, "emits": {"weather.forecast.done": {}, "weather.unknown": {}},
}}}


def delivery(subject=DELIVERED):
    event = {"specversion": "1.0", "id": CALL, "source": "s", "type": "weather.forecast", "dataschema": "#/weather/forecast/1.0.0"}
    return Message(subject, json.dumps(event).encode(), "settle")


class Inbox:
    missed = False

    def __init__(self, subject, messages):
        self.subject, self.messages = subject, messages

    async def next(self, timeout=None):
        while not self.messages:
            await asyncio.sleep(0.001)
        return self.messages.pop(0)

    async def unsubscribe(self):
        pass


class Connection:
    """Delivers messages to whoever asks for calls, and keeps what is published. Who subscribes is told the failures first."""

    user = ""

    def __init__(self, *messages, failures=()):
        self.messages, self.failures = list(messages), list(failures)
        self.answers, self.settled = [], []

    def new_inbox(self):
        return "inbox"

    def on_reconnect(self, call):
        return lambda: None

    async def subscribe(self, subject):
        if self.failures:
            raise self.failures.pop(0)
        return Inbox(subject, self.messages)

    async def publish(self, subject, data=b"", headers=None, reply=""):
        if subject == "settle":
            self.settled.append(data)

    async def request(self, subject, data=b"", headers=None, timeout=5.0):
        if subject.startswith("$JS"):
            return Message("", b'{"config": {}}')
        if len(data) > 2**20:
            raise AgentdError("too_large", "it is")
        self.answers.append(json.loads(data))
        return Message("", b"{}")


async def until(holds):
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.001)


class Serving(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)

    @contextlib.asynccontextmanager
    async def serving(self, handler, *messages, **options):
        """The connection, and the task of a service that is cancelled at the end."""
        service = Service(CONTRACT, hear_voids=False)
        service.handle()(handler)
        connection = Connection(*messages, **options)
        task = asyncio.create_task(service.serve(connection))
        try:
            yield connection, task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def answer(self, handler):
        """The one answer to a call, which is acknowledged then."""
        async with self.serving(handler, delivery()) as (connection, _):
            await until(lambda: connection.settled)
        self.assertEqual(connection.settled, [b"+ACK"])
        self.assertEqual(len(connection.answers), 1)
        return connection.answers[0]

    async def test_a_service_that_is_cancelled_leaves_its_calls_to_others(self):
        began, ended = asyncio.Event(), asyncio.Event()

        async def forecast(call, data):
            began.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()

        async with self.serving(forecast, delivery()) as (connection, task):
            await began.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.assertTrue(ended.is_set())
            await asyncio.sleep(0.01)
        self.assertEqual((connection.settled, connection.answers), ([], []))

    async def test_a_call_that_is_voided_is_acknowledged(self):
        began = asyncio.Event()

        async def forecast(call, data):
            began.set()
            await asyncio.sleep(60)

        async with self.serving(forecast, delivery()) as (connection, _):
            await began.wait()
            connection.messages.append(delivery(DELIVERED.replace(".out.", ".void.")))
            await until(lambda: len(connection.settled) == 2)
        self.assertEqual((connection.settled, connection.answers), ([b"+ACK", b"+ACK"], []))

    async def test_what_a_handler_has_cancelled_itself_is_an_error(self):
        async def forecast(call, data):
            other = asyncio.create_task(asyncio.sleep(60))
            other.cancel()
            await other

        answer = await self.answer(forecast)
        self.assertEqual((answer["type"], answer["data"]["code"]), ("sys.weather.forecast.error", "internal"))

    async def test_what_cannot_be_sent_is_an_error(self):
        async def large(call, data):
            return {"text": "x" * 2**20}

        async def large_error(call, data):
            raise ToolError("x" * 2**20)

        async def surrogate(call, data):
            return {"text": "\ud800"}

        async def surrogate_error(call, data):
            raise ToolError("\ud800")

        for handler, code in ((large, "too_large"), (large_error, "too_large"), (surrogate, "internal"), (surrogate_error, "internal")):
            with self.subTest(handler=handler.__name__):
                answer = await self.answer(handler)
                self.assertEqual((answer["type"], answer["data"]["code"]), ("sys.weather.forecast.error", code))
                self.assertEqual((answer["parentid"], answer["dataschema"]), (CALL, "#/weather/forecast/0.0.0"))

    async def test_a_service_goes_on_when_it_cannot_ask_for_calls(self):
        async def forecast(call, data):
            return {"text": "sunny"}

        failures = [Unavailable("the connection is lost"), RuntimeError("of the connection")]
        async with self.serving(forecast, delivery(), failures=failures) as (connection, task):
            await until(lambda: connection.settled or task.done())
        self.assertEqual(connection.settled, [b"+ACK"])

    async def test_the_same_dict_is_the_same_answer(self):
        unknown = {"$type": "weather.unknown", "text": "nobody knows"}

        async def forecast(call, data):
            return unknown

        for _ in range(2):
            self.assertEqual((await self.answer(forecast))["type"], "weather.unknown")


if __name__ == "__main__":
    unittest.main()

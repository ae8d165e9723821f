"""A service on a connection that is made up."""

import asyncio
import contextlib
import json
import logging
import unittest
from unittest import mock

from agentd import service, wire
from agentd.errors import AgentdError, ToolError, Unavailable
from agentd.service import Service
from agentd.transport import Message

CALL = "c1-0-" + "a" * 26
DELIVERED = f"agentd.out.local.weather_forecast.desk.{wire.run_key('trip')}.{CALL}"
# The 7th message of AGENTD_OUT.
SETTLE = "$JS.ACK.AGENTD_OUT.svc_local_weather_forecast.1.7.3.1790000000800.0"
LETTER = "agentd.dlq.invalid_event.agentd_out.7.local.weather_forecast"


def contract(*emits):
    return {"uri": "#/weather/forecast", "type": "weather.forecast", "versions": {"1.0.0": {"accepts": {}, "emits": dict.fromkeys(emits, {})}}}


CONTRACT, SEVERAL = contract("weather.forecast.done"), contract("weather.forecast.done", "weather.unknown")


def delivery(delivered=DELIVERED, **attributes):
    event = {
        "specversion": "1.0", "id": CALL, "source": "s", "type": "weather.forecast", "subject": "trip", "dataschema": "#/weather/forecast/1.0.0",
    }
    return Message(delivered, json.dumps(event | attributes).encode(), SETTLE)


async def sunny(call, data):
    return {"text": "sunny"}


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
        self.answers, self.settled, self.subscribed, self.asked, self.letters = [], [], [], [], []
        self.on_letter = lambda: b"{}"

    def new_inbox(self):
        return "inbox"

    def on_reconnect(self, call):
        return lambda: None

    async def subscribe(self, subject):
        if self.failures:
            raise self.failures.pop(0)
        self.subscribed.append(subject)
        return Inbox(subject, self.messages)

    async def publish(self, subject, data=b"", headers=None, reply=""):
        if subject.startswith("$JS.ACK."):
            self.settled.append(data)

    async def request(self, subject, data=b"", headers=None, timeout=5.0):
        if subject.startswith("$JS"):
            self.asked.append(subject)
            return Message("", b'{"config": {}}')
        if len(data) > 2**20:
            raise AgentdError("too_large", "it is")
        if ".dlq." in subject:
            self.letters.append((subject, headers, data))
            return Message("", self.on_letter())
        self.answers.append(json.loads(data))
        return Message("", b"{}")


async def until(holds):
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.001)


class Serving(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)

    @contextlib.asynccontextmanager
    async def serving(self, handler, *messages, contract=CONTRACT, units=0, **options):
        """The connection, and the task of a service that is cancelled at the end."""
        serving = Service(contract, hear_voids=False, units=units)
        serving.handle()(handler)
        connection = Connection(*messages, **options)
        task = asyncio.create_task(serving.serve(connection))
        try:
            yield connection, task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def answer(self, handler, *, contract=CONTRACT, units=0, **attributes):
        """The one answer to a call, which is acknowledged then."""
        async with self.serving(handler, delivery(**attributes), contract=contract, units=units) as (connection, _):
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

    async def test_a_call_that_was_voided_before_is_not_begun(self):
        called = []

        async def forecast(call, data):
            called.append(call.id)
            return {"text": "sunny"}

        voids = [delivery(DELIVERED.replace(".out.", ".void.").replace(CALL, name)) for name in (CALL, "another")]
        async with self.serving(forecast, *voids, delivery()) as (connection, _):
            await until(lambda: len(connection.settled) == 3)
        self.assertEqual((connection.settled, connection.answers, called), ([b"+ACK"] * 3, [], []))
        with mock.patch.object(service, "REMEMBERED", 1):  # what is too long ago is forgotten
            async with self.serving(forecast, *voids, delivery()) as (connection, _):
                await until(lambda: len(connection.settled) == 3)
        self.assertEqual((len(connection.answers), called), (1, [CALL]))

    async def test_a_call_that_is_voided_before_it_begins_is_acknowledged(self):
        served, connection = Service(CONTRACT), Connection()
        served.handle()(sunny)
        serving = service._Serving(served, connection, asyncio.Event())
        await serving.free.acquire()
        serving._begin(delivery())
        serving._void(DELIVERED.replace(".out.", ".void."))
        await until(lambda: connection.settled)
        self.assertEqual((connection.settled, connection.answers, serving.active), ([b"+ACK"], [], {}))

    async def test_who_may_not_hear_of_voids_says_so(self):
        class Refused(Inbox):
            def __aiter__(self):
                return self

            async def __anext__(self):
                raise AgentdError("permission_denied", "the NATS server does not let this user subscribe")

        class Hearing(Connection):
            async def subscribe(self, subject):
                return Refused(subject, []) if ".void." in subject else await super().subscribe(subject)

        logging.disable(logging.NOTSET)
        served = Service(CONTRACT)
        served.handle()(sunny)
        with self.assertLogs("agentd.service", "WARNING") as logged:
            task = asyncio.create_task(served.serve(Hearing()))
            await until(lambda: any("late" in line for line in logged.output))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self.assertIn("voided calls may be noticed late: the NATS server does not let this user subscribe", logged.output[-1])

    async def test_an_answer_that_may_not_be_stored_now_is_left_to_another_delivery(self):
        refusals, other = [AgentdError("permission_denied", "no")], CALL.replace("c1-0", "c1-1")

        class Refusing(Connection):
            async def request(self, subject, data=b"", headers=None, timeout=5.0):
                if subject.startswith("agentd.in.") and refusals:
                    raise refusals.pop()
                return await super().request(subject, data, headers, timeout)

        served = Service(CONTRACT, hear_voids=False)
        served.handle()(sunny)
        connection = Refusing(delivery(), delivery(DELIVERED.replace(CALL, other), id=other))
        task = asyncio.create_task(served.serve(connection))
        await until(lambda: connection.settled)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self.assertEqual([answer["parentid"] for answer in connection.answers], [other])

    async def test_a_call_that_is_due_is_not_begun(self):
        called = []

        async def forecast(call, data):
            called.append(call)
            return {"text": "sunny"}

        answer = await self.answer(forecast, expirytime="2020-01-01T00:00:00Z")
        self.assertEqual((answer["data"]["code"], answer["data"]["retryable"], called), ("deadline_exceeded", True, []))
        for expirytime in ("9999-01-01T00:00:00Z", 5, "soon"):
            self.assertEqual((await self.answer(forecast, expirytime=expirytime))["type"], "weather.forecast.done")

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

    async def test_others_read_nothing_of_errors_that_are_not_for_them(self):
        class Secret(AgentdError):
            pass

        for error in (Unavailable("s3cret"), Secret("contract_violation", "s3cret"), KeyError("s3cret"), TimeoutError("s3cret")):
            async def forecast(call, data):
                raise error

            with self.subTest(error=error):
                data = (await self.answer(forecast))["data"]
                self.assertEqual((data["code"], data["errorMessage"]), ("internal", "internal error"))

    async def test_what_is_no_answer_is_an_error_that_is_logged(self):
        logging.disable(logging.NOTSET)
        for returned, said in (
            (None, "returned NoneType; want a dict"), ([], "returned list; want a dict"), ("sunny", "returned str; want a dict"),
            ({"$type": "weather.other"}, "with $type one of weather.forecast.done"), ({"$units": -1}, "$units are -1"), ({"$units": True}, "$units are True"),
            ({"$units": "7"}, "$units are '7'"), ({"$units": float("nan")}, "$units are nan"), ({"$units": 1e13}, "$units are 1"), ({"degrees": float("nan")}, "expected JSON, which is of dict, list, str, finite numbers"),
        ):
            async def forecast(call, data):
                return returned

            with self.subTest(returned=returned), self.assertLogs("agentd.service") as logged:
                answer = await self.answer(forecast)
                self.assertEqual((answer["type"], answer["data"]["code"]), ("sys.weather.forecast.error", "internal"))
                self.assertIn(said, "".join(logged.output))

    async def test_a_plain_function_is_a_handler(self):
        self.assertEqual((await self.answer(lambda call, data: {"text": "sunny"}))["data"], {"text": "sunny"})

    async def test_calls_name_a_version(self):
        for attributes, code in (
            ({"dataschema": "#/weather/other/1.0.0"}, "contract_missing"), ({"dataschema": "#/weather/forecast/2.0.0"}, "contract_missing"),
            ({"dataschema": "#/weather/forecast/latest"}, "invalid_event"), ({"dataschema": "1.0.0"}, "invalid_event"),
            ({"type": "weather.other"}, "invalid_event"),
        ):
            with self.subTest(attributes=attributes):
                self.assertEqual((await self.answer(sunny, **attributes))["data"]["code"], code)
        for dataschema, answered in (
            ("agentd:/weather/forecast/1.0.0", "agentd:/weather/forecast/1.0.0"), (None, "#/weather/forecast/1.0.0"), ("", "#/weather/forecast/1.0.0"),
        ):
            with self.subTest(dataschema=dataschema):
                answer = await self.answer(sunny, dataschema=dataschema)
                self.assertEqual((answer["type"], answer["dataschema"]), ("weather.forecast.done", answered))

    async def test_a_service_that_cannot_be_served_is_refused(self):
        nothing = Service(CONTRACT, slots=0)
        with self.assertRaises(AgentdError) as caught:
            await nothing.serve(Connection())
        self.assertEqual(str(caught.exception), "config: the service weather.forecast cannot be run; "
                         "weather.forecast 1.0.0: expected a handler, got none; slots: expected at least 1, got 0")
        empty = Service({"type": "weather.forecast"})
        empty.handle()(sunny)
        with self.assertRaises(AgentdError) as caught:
            await empty.serve(Connection())
        self.assertEqual([fault["path"] for fault in caught.exception.faults], ["$.uri", "$.versions"])
        definition = {"accepts": {}, "emits": {"done": {}}}
        bad = {"uri": "#/a", "type": "a b", "versions": {
            "1.0": definition, "0.0.0": definition, "1.0.0": {"accepts": [], "emits": {}}, "1.1.0": {"emits": {"x y": {}, "sys.a b.error": {}}},
        }}
        nameless = {"uri": "#/a", "versions": {"1.0.0": {"accepts": True, "emits": {"done": True}}}}
        for contract, units, paths in (
            (bad, -1, ["$.type", '$.versions["1.0"]', '$.versions["0.0.0"]', '$.versions["1.0.0"].accepts', '$.versions["1.0.0"].emits',
                       '$.versions["1.1.0"].accepts', '$.versions["1.1.0"].emits', '$.versions["1.1.0"].emits', "units"]),
            (nameless, 0, ["$.type"]),
        ):
            served = Service(contract, units=units)
            served.handle()(sunny)
            with self.assertRaises(AgentdError) as caught:
                await served.serve(Connection())
            self.assertEqual((caught.exception.code, [fault["path"] for fault in caught.exception.faults]), ("config", paths))

    def test_a_version_has_one_handler(self):
        for first, second in (("", ""), ("1.0.0", "1.0.0")):
            served = Service(CONTRACT)
            served.handle(first)(sunny)
            with self.assertRaises(ValueError):
                served.handle(second)
        served.handle()(sunny)  # of every other version

    async def test_what_is_not_a_call_is_a_dead_letter(self):
        other = wire.run_key("other")
        for message, detail in (
            (Message(DELIVERED, b"{", SETTLE, {"A": ["b", "c"], "Nats-Msg-Id": ["1"], "agentd-settled": ["x"], "Agentd-Reason": ["y"]}),
             "the body is not a CloudEvent"),
            (delivery(id="another"), "the event's id is not that of its subject"), (delivery(subject="other"), "the event's run is not that of its subject"),
            (delivery(DELIVERED.replace(wire.run_key("trip"), other)), "the event's run is not that of its subject"),
        ):
            with self.subTest(detail=detail):
                async with self.serving(sunny, message) as (connection, _):
                    await until(lambda: connection.settled)
                self.assertEqual((connection.settled, connection.answers), ([b"+ACK"], []))
                [(subject, headers, data)] = connection.letters
                self.assertEqual((subject, data), (LETTER, message.data))
                self.assertTrue(headers.pop("agentd-detail").startswith(f"invalid_event: {detail}"))
                own = {"A": ["b", "c"]} if message.headers else {}
                self.assertEqual(headers, own | {
                    "agentd-reason": "invalid_event", "agentd-subject": message.subject, "Nats-Expected-Last-Subject-Sequence": "0",
                })

    async def test_a_dead_letter_that_cannot_be(self):
        def forbidden():
            raise AgentdError("permission_denied", "no")

        def away():
            raise Unavailable("away")

        for on_letter, settled in (
            (lambda: b'{"error": {"err_code": 10071}}', True), (forbidden, True), (away, False), (lambda: b'{"error": {"err_code": 10077}}', False),
        ):
            async with self.serving(sunny) as (connection, _):
                connection.on_letter = on_letter
                connection.messages += [delivery(id="another"), delivery()]
                await until(lambda: connection.answers and len(connection.settled) == 1 + settled)
            self.assertEqual(len(connection.letters), 1)
        large = Message(DELIVERED, b"x" * (2**20 + 1), SETTLE.replace("$JS.ACK.", "$JS.ACK.hub.account.") + ".random", {"A": ["b"]})
        async with self.serving(sunny, large) as (connection, _):
            await until(lambda: connection.settled)
        [(subject, headers, data)] = connection.letters
        self.assertEqual((subject, headers["agentd-omitted"], "A" in headers, data), (LETTER, "true", False, b""))

    async def test_answers_have_the_attributes_of_their_calls(self):
        for attributes, to in (({"redirectto": "there"}, "there"), ({}, "s")):
            answer = await self.answer(sunny, **attributes)
            self.assertEqual((answer["to"], answer["subject"], answer["parentid"]), (to, "trip", CALL))

    async def test_answers_say_what_they_cost(self):
        async def dear(call, data):
            return {"text": "sunny", "$units": 2.5}

        async def fails(call, data):
            raise ToolError("no")

        for handler, units, cost in ((sunny, 0, None), (sunny, 0.25, 0.25), (dear, 0.25, 2.5), (fails, 0.25, 0.25)):
            with self.subTest(handler=handler.__name__, units=units):
                answer = await self.answer(handler, units=units)
                self.assertEqual(answer.get("executionunits"), cost)
                self.assertNotIn("$units", answer["data"])

    async def test_a_service_ends_with_its_connection(self):
        closed = Unavailable("closed", retryable=False)
        async with self.serving(sunny, failures=[closed]) as (_, task):
            await until(task.done)
        self.assertIs(task.exception(), closed)

    async def test_streams_and_subjects_are_of_the_root(self):
        acme = Service(CONTRACT, root="acme")
        acme.handle()(sunny)
        connection = Connection()
        task = asyncio.create_task(acme.serve(connection))
        await until(lambda: connection.asked and connection.subscribed)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self.assertEqual(connection.asked, ["$JS.API.CONSUMER.INFO.ACME_OUT.svc_local_weather_forecast"])
        self.assertIn("acme.void.local.weather_forecast.>", connection.subscribed)

    async def test_a_service_goes_on_when_it_cannot_ask_for_calls(self):
        failures = [Unavailable("the connection is lost"), RuntimeError("of the connection")]
        async with self.serving(sunny, delivery(), failures=failures) as (connection, task):
            await until(lambda: connection.settled or task.done())
        self.assertEqual(connection.settled, [b"+ACK"])

    async def test_of_several_types_an_answer_says_which(self):
        answer = await self.answer(sunny, contract=SEVERAL)
        self.assertEqual((answer["type"], answer["data"]["code"]), ("sys.weather.forecast.error", "internal"))

    async def test_the_same_dict_is_the_same_answer(self):
        unknown = {"$type": "weather.unknown", "text": "nobody knows"}

        async def forecast(call, data):
            return unknown

        for _ in range(2):
            self.assertEqual((await self.answer(forecast, contract=SEVERAL))["type"], "weather.unknown")


if __name__ == "__main__":
    unittest.main()

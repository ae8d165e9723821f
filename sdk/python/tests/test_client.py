"""How runs are asked about, followed and waited for, on a connection that is made up."""

import asyncio
import json
import unittest
from unittest import mock

from agentd import AgentdError, Client, Outcome, Run
from agentd import client as clients
from agentd.answers import Awaited
from agentd.transport import Message

RUN = Run("desk", "trip", "init")
NAMED, PLAIN = "agentd.get.desk.ann", "agentd.get.desk"


def error(code):
    return Message("", b"", headers={"Nats-Service-Error-Code": [code], "Nats-Service-Error": ["no"]})


def status(**members):
    return Message("", json.dumps({"run": "trip", "status": "running", **members}).encode())


def milestone(rev, kind, i=0, count=1, data=None):
    return {"type": f"agentd.live.{kind}", "rev": rev, "i": i, "count": count, "data": data or {}}


class Subscription:
    def __init__(self, connection, subject):
        self.connection, self.subject, self.missed, self.messages = connection, subject, False, asyncio.Queue()

    async def next(self, timeout=None):
        async with asyncio.timeout(timeout):
            message = await self.messages.get()
        if isinstance(message, Exception):
            raise message
        return message

    async def unsubscribe(self):
        self.connection.subscriptions.remove(self)


class Connection:
    """Answers requests as its answers say, one after the other and the last again and again, and keeps the subjects of what is sent."""

    def __init__(self, user="", **answers):
        self.user, self.answers = user, answers
        self.requested, self.published, self.subscriptions, self.stored = [], [], [], []
        self.on_publish = lambda subject: None
        self.reconnected = lambda: None

    async def request(self, subject, data=b"", headers=None, timeout=5.0):
        self.requested.append(subject)
        kind = "named" if subject == NAMED else "plain" if subject == PLAIN else "done" if ".DIRECT.GET." in subject else "stored"
        if kind == "stored":
            self.stored.append((subject, json.loads(data)))
            return Message("", b"{}")
        answers = self.answers[kind]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def publish(self, subject, data=b"", headers=None, reply=""):
        self.published.append(subject)
        self.on_publish(subject)

    async def subscribe(self, subject):
        self.subscriptions.append(Subscription(self, subject))
        return self.subscriptions[-1]

    def on_reconnect(self, call):
        self.reconnected = call
        return lambda: None


class Asking(unittest.IsolatedAsyncioTestCase):
    async def asked(self, named, plain, user="ann"):
        """What status comes to, and the subjects that were asked."""
        connection = Connection(user, named=[named], plain=[plain])
        try:
            said = (await Client(connection).status(RUN))["status"]
        except AgentdError as e:
            said = str(e)
        return said, connection.requested

    async def test_of_what_others_started_who_may_see_all_asks(self):
        denied = AgentdError("permission_denied", "the NATS server does not let this user publish")
        for named, plain, said, subjects in (
            (status(), error("unavailable"), "running", [NAMED]),
            (error("permission_denied"), status(), "running", [NAMED, PLAIN]),
            (denied, status(), "running", [NAMED, PLAIN]),
            (error("permission_denied"), denied, "permission_denied: no", [NAMED, PLAIN]),
            (error("permission_denied"), error("unknown_run"), "unknown_run: no", [NAMED, PLAIN]),
            (error("unknown_run"), status(), "unknown_run: no", [NAMED]),
        ):
            with self.subTest(said=said, subjects=subjects):
                self.assertEqual(await self.asked(named, plain), (said, subjects))
        self.assertEqual(await self.asked(status(), error("permission_denied"), user=""), ("permission_denied: no", [PLAIN]))

    async def test_an_operator_cancels_what_others_started_as_nobody(self):
        for named, plain, subject in (
            (error("permission_denied"), status(initiator="bob"), "agentd.ctl.cancel.desk.{run}"),
            (status(initiator="ann"), None, "agentd.ctl.cancel.desk.{run}.ann"),
        ):
            connection = Connection("ann", named=[named], plain=[plain])
            await Client(connection).cancel(RUN)
            self.assertEqual([s for s, _ in connection.stored], [subject.format(run=clients.wire.run_key("trip"))])


class Following(unittest.IsolatedAsyncioTestCase):
    async def told(self, connection, after=(0, 0)):
        async with asyncio.timeout(60):
            return [live.type async for live in Client(connection).follow(RUN, after)]

    async def test_a_run_that_was_retried_goes_on_after_an_end(self):
        first = [milestone(1, "run.started"), milestone(2, "run.finished"), milestone(3, "run.retried")]
        connection = Connection(plain=[status(milestones=first, more=True), status(milestones=[milestone(4, "run.finished")])])
        self.assertEqual(await self.told(connection), ["run.started", "run.finished", "run.retried", "run.finished"])

    async def test_what_workers_had_forgotten_to_tell_is_asked_for(self):
        for stood_still, found in ((16, True), (14, False)):
            asks = [status(milestones=[milestone(1, "run.started")]), status(), status(milestones=[milestone(2, "run.finished")])]
            connection, now, announced = Connection(plain=asks), [0], []

            def announce(subject):
                announced.append(subject)
                if len(announced) == 3:  # workers know of it, and forget
                    asyncio.get_running_loop().call_soon(now.append, stood_still)

            connection.on_publish = announce
            with self.subTest(stood_still=stood_still), mock.patch.object(clients, "WATCH_EVERY", 0.005), \
                    mock.patch.object(clients, "ASK_AGAIN", 0.005), mock.patch.object(clients, "monotonic", lambda: now[-1]):
                following = asyncio.create_task(self.told(connection))
                while len(announced) < 8 and not following.done():
                    await asyncio.sleep(0)
                self.assertEqual(following.done(), found)
                self.assertEqual(len(connection.requested), 3 if found else 2)
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            self.assertEqual(connection.subscriptions, [])

    async def test_asks_again_where_it_cannot_be_told_now(self):
        for passing in (error("unavailable"), error("internal"), AgentdError("internal", "no")):
            connection = Connection(plain=[passing, status(milestones=[milestone(1, "run.finished")])])
            with mock.patch.object(clients, "ASK_AGAIN", 0.001):
                self.assertEqual(await self.told(connection), ["run.finished"])

    async def test_ends_where_the_run_may_not_be_seen(self):
        connection = Connection("ann", named=[error("permission_denied")], plain=[error("permission_denied")])
        with self.assertRaises(AgentdError) as caught:
            await self.told(connection)
        self.assertEqual(caught.exception.code, "permission_denied")
        self.assertEqual(connection.subscriptions, [])

    async def test_who_may_not_hear_that_workers_ask_announces_all_the_same(self):
        connection = Connection(plain=[status()])
        announced, denied = [], AgentdError("permission_denied", "no")

        def announce(subject):
            announced.append(subject)
            for subscription in connection.subscriptions:
                if subscription.subject == "agentd.watch.ask":
                    subscription.messages.put_nowait(denied)

        connection.on_publish = announce
        with mock.patch.object(clients, "WATCH_EVERY", 0.005):
            following = asyncio.create_task(self.told(connection))
            async with asyncio.timeout(60):
                while len(announced) < 4:
                    await asyncio.sleep(0)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


    async def test_who_is_connected_again_says_at_once_that_they_read(self):
        connection = Connection(plain=[status(), status(milestones=[milestone(1, "run.finished")])])
        with mock.patch.object(clients, "WATCH_EVERY", 60), mock.patch.object(clients, "ASK_AGAIN", 0.001):
            following = asyncio.create_task(self.told(connection))
            async with asyncio.timeout(5):
                while not connection.requested:
                    await asyncio.sleep(0)
                connection.reconnected()
                while len(connection.published) < 2:  # workers may have asked meanwhile who reads
                    await asyncio.sleep(0)
                self.assertEqual(await following, ["run.finished"])

    async def test_ends_where_it_can_announce_no_more(self):
        connection = Connection(plain=[status()])

        def announce(subject):
            if len(connection.published) == 2:
                raise BufferError("full")

        connection.on_publish = announce
        with mock.patch.object(clients, "WATCH_EVERY", 0.001), mock.patch.object(clients, "ASK_AGAIN", 0.001), self.assertRaises(BufferError):
            await self.told(connection)
        self.assertEqual(connection.subscriptions, [])

    async def test_what_somebody_has_delivered_there_is_not_told(self):
        connection = Connection(plain=[status()])
        following = asyncio.create_task(self.told(connection))
        async with asyncio.timeout(5):
            while not connection.requested:
                await asyncio.sleep(0)
            stream = connection.subscriptions[0]
            for subject, event in (("agentd.in.local.other", {}), (stream.subject, milestone(1, "run.finished"))):
                stream.messages.put_nowait(Message(subject, json.dumps(event).encode()))
            self.assertEqual(await following, ["run.finished"])

    async def test_what_the_server_has_put_there_is_not_told(self):
        connection = Connection(plain=[status()])
        following = asyncio.create_task(self.told(connection))
        async with asyncio.timeout(60):
            while not connection.requested:
                await asyncio.sleep(0)
            stream = connection.subscriptions[0]
            for body in (b"", b"+OK", b"7", b"[]", b'{"stream":"AGENTD_START","seq":7}', b'{"type":7}', json.dumps(milestone(1, "run.finished")).encode()):
                stream.messages.put_nowait(Message(stream.subject, body))
            self.assertEqual(await following, ["run.finished"])


CALL = "c1-0-" + "a" * 26
ANSWER = f"{CALL}-r2-answer-0f"


class Outcomes(unittest.IsolatedAsyncioTestCase):
    def test_of_answers(self):
        for kind, data, outcome in (
            ("call.result", {"call": CALL, "event": ANSWER}, Outcome("counted")), ("call.result", {"call": CALL, "event": "another"}, Outcome("sent")),
            ("question.answered", {"question": CALL, "event": ANSWER}, Outcome("counted")), ("call.opened", {"call": CALL, "event": ANSWER}, None),
            ("question.answered", {"question": CALL, "call": "c0", "error": True}, Outcome("sent")), ("conversation.answer", {"message": "May"}, None),
            ("conversation.answer", {"call": CALL, "event": ANSWER}, Outcome("counted")),
            ("call.result", {"call": CALL.replace("c1", "c2"), "event": "another"}, None), ("question.answered", {"question": "q", "call": CALL}, None),
        ):
            with self.subTest(kind=kind, data=data):
                self.assertEqual(Awaited(ANSWER).told(kind, data), outcome)
        self.assertIsNone(Awaited("mine").told("call.result", {"event": "another"}))

    def test_of_decisions(self):
        def decided(event=ANSWER, refused=None, **members):
            return {"decision": {"event": event, "refused": refused}, **members}

        for told, outcome in (
            ([decided()], Outcome("counted")), ([decided("another")], None), ([decided(more=True)], None),
            ([decided("another", "unsigned"), decided(allowed=1, quorum=2)], Outcome("counted", open=True, allowed=1, quorum=2)),
            ([decided(queued=True, undecided=3)], Outcome("counted", queued=True, undecided=3)),
            ([decided(refused="unsigned", rest=2)], Outcome("refused", "unsigned", open=True, rest=2)),
            ([decided(more=True, rest=2), decided(refused="too late", rest=1)], Outcome("counted", "too late", open=True, rest=1)),
        ):
            with self.subTest(told=told):
                awaited = Awaited(ANSWER)
                self.assertEqual([awaited.told("permission.decided", data) for data in told][-1], outcome)

    async def test_is_told_for_so_long(self):
        def told(event):
            return Client(Connection(plain=[status(milestones=[milestone(1, "call.result", data={"call": "c", "event": event})])]))

        self.assertEqual(await told(ANSWER).outcome(RUN, ANSWER), Outcome("counted"))
        self.assertEqual(await told("another").outcome(RUN, ANSWER, timeout=0.01), Outcome("sent"))
        with self.assertRaises(AgentdError) as caught:
            await Client(Connection(plain=[error("permission_denied")])).outcome(RUN, ANSWER)
        self.assertEqual(caught.exception.code, "permission_denied")


class Waiting(unittest.IsolatedAsyncioTestCase):
    def end(self, response):
        event = {"specversion": "1.0", "id": "t-1", "source": "desk", "type": "desk.done", "data": {"response": response}}
        return Message("", json.dumps(event).encode())

    async def test_what_the_server_has_put_in_the_place_of_an_end_is_none(self):
        acknowledged, of_server = b'{"stream":"AGENTD_DONE","seq":7}', {"Nats-Stream": ["AGENTD_DONE"]}
        connection = Connection(done=[Message("", acknowledged, headers=of_server), self.end("stored")])
        self.assertEqual((await Client(connection).wait(RUN, timeout=5)).data, {"response": "stored"})
        connection = Connection(done=[Message("", acknowledged, headers=of_server | {"Content-Type": ["application/json"]})])
        with self.assertRaises(AgentdError) as caught:
            await Client(connection).wait(RUN, timeout=5)
        self.assertEqual(caught.exception.code, "invalid_event")

    async def test_an_end_that_is_heard_counts_when_it_is_stored(self):
        connection = Connection(done=[Message("", b"", status=404), Message("", b"", status=404), self.end("stored")])
        with mock.patch.object(clients, "LOOK_FIRST", 60):  # what is heard has it look
            waiting = asyncio.create_task(Client(connection).wait(RUN))
            async with asyncio.timeout(60):
                while not connection.subscriptions:
                    await asyncio.sleep(0)
                for _ in range(2):
                    connection.subscriptions[0].messages.put_nowait(self.end("refused"))
                self.assertEqual((await waiting).data, {"response": "stored"})


if __name__ == "__main__":
    unittest.main()

"""What people answer and decide, on a connection that is made up."""

import json
import unittest

from agentd import AgentdError, Client, Run
from agentd.answers import PERMISSION, QUESTION, TURN
from agentd.transport import Message

RUN = Run("desk", "trip", "init")
ONE = {"call": "c1", "args_sha256": "one"}
BATCH = {"calls": [{"call": "c1", "args_sha256": "one"}, {"call": "c2", "args_sha256": "two"}], "args_sha256": "both"}


class Connection:
    """Has one open call, and keeps the events that are stored."""

    user = ""

    def __init__(self, kind, asked):
        self.waiting = {"type": kind, "call": "c1", "event": "e1", "asked": asked}
        self.stored = []

    async def request(self, subject, data=b"", headers=None, timeout=5.0):
        if ".get." in subject:
            return Message("", json.dumps({"waiting": [self.waiting]}).encode())
        self.stored.append(json.loads(data))
        return Message("", b"{}")


class Asked(unittest.IsolatedAsyncioTestCase):
    async def sent(self, kind, asked, do):
        """The data of the one event that is stored, or the code of the error, before which nothing is stored."""
        connection = Connection(kind, asked)
        try:
            await do(Client(connection))
        except AgentdError as e:
            self.assertEqual(connection.stored, [])
            return e.code
        self.assertEqual(len(connection.stored), 1)
        return connection.stored[0]["data"]

    async def test_answers(self):
        form = {"answer": '{"color":"red","é":[1]}', "content": {"é": [1], "color": "red"}}
        for kind, given, want in (
            (QUESTION, {"text": "May"}, {"answer": "May"}),
            (QUESTION, {"data": {"é": [1], "color": "red"}}, form),
            (QUESTION, {"data": {}}, {"answer": "{}", "content": {}}),
            (QUESTION, {"data": {"answer": "red", "shade": 1}}, {"answer": '{"answer":"red","shade":1}', "content": {"answer": "red", "shade": 1}}),
            (QUESTION, {"data": {"action": "decline"}}, {"action": "decline"}),
            (QUESTION, {"data": {"answer": "red", "content": {"color": "red"}}}, {"answer": "red", "content": {"color": "red"}}),
            (QUESTION, {"text": " \n"}, "contract_violation"), (QUESTION, {}, "contract_violation"),
            (QUESTION, {"text": "May", "end": True}, "contract_violation"), (QUESTION, {"text": "May", "data": {}}, "contract_violation"),
            (QUESTION, {"data": ["red"]}, "contract_violation"), (QUESTION, {"data": {"n": float("nan")}}, "invalid_event"),
            (TURN, {"text": "go on"}, {"message": "go on", "end": False}), (TURN, {"end": True}, {"message": "", "end": True}),
            (TURN, {"text": ""}, "contract_violation"), (TURN, {"data": {}}, {}), (TURN, {"data": {"message": "hi"}}, {"message": "hi"}),
            (TURN, {"end": True, "data": {"message": "hi"}}, "contract_violation"),
        ):
            with self.subTest(kind=kind, given=given):
                self.assertEqual(await self.sent(kind, {}, lambda client: client.answer(RUN, **given)), want)

    async def test_decisions(self):
        for asked, decision, terms, want in (
            (ONE, "allow", {}, {"decision": "allow", "args_sha256": "one"}),
            (ONE, "deny", {"args_sha256": "one", "reason": "no"}, {"decision": "deny", "args_sha256": "one", "reason": "no"}),
            (ONE, "allow", {"args_sha256": "two"}, "decision_refused"), (ONE, "alow", {}, "decision_refused"), (ONE, "viewed", {}, "decision_refused"),
            (ONE, "allow", {"all": True}, "decision_refused"), (ONE, "allow", {"calls": [{"call": "c1"}]}, "decision_refused"),
            (BATCH, "allow", {}, "decision_refused"), (BATCH, "allow", {"calls": [{"call": "c1"}], "all": True}, "decision_refused"),
            (BATCH, "allow", {"all": True}, {"decision": "allow", "all": True, "args_sha256": "both"}),
            (BATCH, "allow", {"all": True, "args_sha256": "one"}, "decision_refused"),
            (BATCH, "allow", {"calls": [{"call": "c2", "decision": "deny"}]},
             {"decision": "allow", "calls": [{"call": "c2", "decision": "deny", "args_sha256": "two"}]}),
            (BATCH, "allow", {"calls": [{"call": "c2", "args_sha256": "one"}]}, "decision_refused"),
            (BATCH, "allow", {"calls": [{"call": "c3"}]}, "decision_refused"),
        ):
            with self.subTest(decision=decision, terms=terms):
                self.assertEqual(await self.sent(PERMISSION, asked, lambda client: client.decide(RUN, decision, **terms)), want)

    async def test_messages(self):
        for text, want in (
            ("hurry", {"message": "hurry"}), ("é" * 2**15, {"message": "é" * 2**15}),
            ("", "message_refused"), ("é" * 2**15 + "x", "message_refused"), ("\ud800", "invalid_event"),
        ):
            with self.subTest(text=text[:9]):
                self.assertEqual(await self.sent("", {}, lambda client: client.send(RUN, text)), want)

    async def test_starts(self):
        for given, want in (
            ({"data": {}}, {}), ({"data": []}, "contract_violation"), ({"data": {}, "name": "a\nb"}, "invalid_event"), ({"data": {}, "key": "k\0"}, "invalid_event"),
            ({"data": {}, "name": "n" * 8193}, "invalid_event"), ({"data": {}, "key": "\ud800"}, "invalid_event"), ({"data": {}, "agent": "a b"}, "invalid_event"),
        ):
            with self.subTest(given=given):
                self.assertEqual(await self.sent("", {}, lambda client: client.start(**{"agent": "desk"} | given)), want)


if __name__ == "__main__":
    unittest.main()

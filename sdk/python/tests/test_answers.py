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
            (ONE, "deny", {"reason": None, "all": False, "calls": [], "scope": "", "uses": 0, "expires": None}, {"decision": "deny", "args_sha256": "one"}),
            (ONE, "allow", {"args": {}}, {"decision": "allow", "args_sha256": "one", "args": {}}),
            (ONE, "result", {"result": {}}, {"decision": "result", "args_sha256": "one", "result": {}}),
            (ONE, "allow", {"reasn": "no"}, "decision_refused"), (ONE, "allow", {"reasn": None}, "decision_refused"),
            (BATCH, "allow", {"calls": [{"call": "c1", "reason": None, "decision": ""}], "reason": None},
             {"decision": "allow", "calls": [{"call": "c1", "args_sha256": "one"}]}),
            (BATCH, "allow", {"calls": [{"call": "c1", "decision": "alow"}]}, "decision_refused"),
            (BATCH, "allow", {"calls": [{"call": "c1", "decision": "viewed"}]}, "decision_refused"),
            (BATCH, "allow", {"calls": [{"call": "c1", "scope": "run"}]}, "decision_refused"),
            (BATCH, "allow", {"calls": ["c1"]}, "decision_refused"), (BATCH, "allow", {"calls": "c1"}, "decision_refused"),
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

    async def test_limits_of_starts(self):
        names = ("requirepermission", "tokenbudget", "constraints", "tags", "tracestate")
        for given, want in (
            ({}, {}), ({"require": [], "tokens": 0, "tags": {}}, {}),
            ({"require": ["send_mail", "pay_*"], "tokens": 7}, {"requirepermission": "send_mail,pay_*", "tokenbudget": "7"}),
            ({"require": ("pay",), "tracestate": "a=b"}, {"requirepermission": "pay", "tracestate": "a=b"}),
            ({"constraints": {"read_only": True, "deny": ["é"]}}, {"constraints": '{"deny":["é"],"read_only":true}'}), ({"constraints": {}}, {"constraints": "{}"}),
            ({"tags": {"tenant": "acme", "order": "7=8", "a.b_c-": ""}}, {"tags": "a.b_c-=,order=7=8,tenant=acme"}),
            ({"tags": {str(i): "é" * 64 for i in range(16)}}, {"tags": ",".join(f"{i}={'é' * 64}" for i in sorted(map(str, range(16))))}),
            *((refused, "invalid_event") for refused in (
                {"require": "send_mail"}, {"require": b"pay"}, {"require": [7]}, {"require": ["pay", " "]}, {"tokens": True}, {"tokens": -1}, {"tokens": 1.5}, {"tokens": "7"},
                {"constraints": [1]}, {"constraints": {"deny": {1}}}, {"constraints": {"deny": ["x" * 8192]}},
                {"tags": {str(i): "" for i in range(17)}}, {"tags": {"A": "1"}}, {"tags": {"": "1"}}, {"tags": {"a" * 33: "1"}},
                {"tags": {"a": "1,b=2"}}, {"tags": {"a": "1\n"}}, {"tags": {"a": "é" * 65}}, {"tags": {"a": 1}}, {"tags": {1: "a"}}, {"tags": {"a": "\ud800"}},
            )),
        ):
            with self.subTest(given=given):
                connection = Connection("", {})
                try:
                    await Client(connection).start("desk", {}, **given)
                    got = {name: value for name, value in connection.stored[0].items() if name in names}
                except AgentdError as e:
                    got = e.code
                self.assertEqual(got, want)


if __name__ == "__main__":
    unittest.main()

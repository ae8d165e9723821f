"""The test vectors that every implementation of the wire shares (docs/wire.md#test-vectors)."""

import datetime
import json
import unittest
from pathlib import Path

from agentd import wire
from agentd.errors import AgentdError
from agentd.nats import parse_headers

VECTORS = json.loads((Path(__file__).parents[2] / "wire" / "testdata" / "wire.json").read_text(encoding="utf-8"))


class Vectors(unittest.TestCase):
    def each(self, section):
        for vector in VECTORS[section]:
            with self.subTest(section=section, vector=vector):
                yield vector

    def test_runs(self):
        for v in self.each("runs"):
            self.assertEqual(wire.run_key(v["subject"]), f"{v['partition']}.{v['token']}")

    def test_inits(self):
        for v in self.each("inits"):
            self.assertEqual(wire.init_token(v["source"], v["id"]), v["token"])

    def test_terminals(self):
        for v in self.each("terminals"):
            self.assertEqual(wire.terminal_id(v["subject"], wire.init_token(v["source"], v["init_id"])), v["event_id"])

    def test_call_events(self):
        for v in self.each("call_events"):
            found = wire.call_of(v["event_id"])
            self.assertEqual(found is not None, v["valid"])
            if found:
                self.assertEqual(found, (v["call"], v["attempt"], v.get("domain", "")))

    def test_replies(self):
        for v in self.each("replies"):
            self.assertEqual(wire.reply_subject(v["delivered"]), v["reply"])


class Hostile(unittest.TestCase):
    def test_what_is_not_an_event(self):
        for body in (b"", b"\xff", b"[]", b"7", b"{}", b'{"specversion":"1.0","id":"1","source":"s"}', b"[" * 100_000,
                     b'{"specversion":"1.0","id":"1","source":"s","type":"t","data":[]}'):
            with self.subTest(body=body[:40]), self.assertRaises(AgentdError) as caught:
                wire.decode(body)
            self.assertEqual(caught.exception.code, "invalid_event")

    def test_names(self):
        for name in ("", ".", "a..b", "-a", "a b", "a.>", "*", "a" * 129, "é"):
            with self.subTest(name=name), self.assertRaises(AgentdError):
                wire.token(name)

    def test_an_answer_goes_nowhere_but_where_the_call_was_delivered(self):
        with self.assertRaises(AgentdError):
            wire.reply_subject("agentd.in.local.weather_forecast.desk.253.run.call")

    def test_what_nobody_could_read_is_not_sent(self):
        def deep(levels):
            return {"in": deep(levels - 1)} if levels > 1 else {}

        def wide(members):
            return {"rows": [{"a": 1} for _ in range(members - 1)]}

        cycle = {}
        cycle["a"] = cycle
        for data in ({"a": datetime.datetime.now()}, {"a": float("nan")}, {"a": "\ud800"}, {"\udfff": 1}, {b"a": 1}, {"1": 1, 1: 1},
                     {"a": 10**5000}, {"a": {1}}, cycle, wide(10065), deep(65), {"a": [[deep(62)]]}):
            with self.subTest(data=str(type(data))), self.assertRaises(AgentdError) as caught:
                wire.encode({"specversion": "1.0", "data": data})
            self.assertEqual(caught.exception.code, "invalid_event")
        for data in (wide(10064), deep(64), {"a": [deep(62)]}, {"1": 1, 2: 2}, {"a": "\U0001f600 \\ud800"}):
            self.assertEqual(json.loads(wire.encode({"data": data}))["data"], json.loads(json.dumps(data)))

    def test_headers(self):
        self.assertEqual(parse_headers(b"NATS/1.0 408 Request Timeout\r\nA: b:c\r\n\r\n"), ({"A": "b:c"}, 408))
        self.assertEqual(parse_headers(b"NATS/1.0\r\n\xff: 1\r\n\r\n"), ({"\ufffd": "1"}, 0))
        self.assertEqual(parse_headers(b""), ({}, 0))


if __name__ == "__main__":
    unittest.main()

"""The test vectors that every implementation of the wire shares (docs/wire.md#test-vectors)."""

import datetime
import json
import unittest
from pathlib import Path
from unittest import mock

from agentd import wire
from agentd.errors import AgentdError
from agentd.nats import parse_headers

VECTORS = json.loads((Path(__file__).parents[2] / "wire" / "testdata" / "wire.json").read_text(encoding="utf-8"))

EVENT = {"specversion": "1.0", "id": "1", "source": "s", "type": "t"}


class Vectors(unittest.TestCase):
    def each(self, section):
        self.assertTrue(VECTORS[section], f"there are no {section}")
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
                wire.encode(EVENT | {"data": data})
            self.assertTrue(str(caught.exception).startswith("invalid_event: $.data: expected"), caught.exception)
        for data in (wide(10064), deep(64), {"a": [deep(62)]}, {"1": 1, 2: 2}, {"a": "\U0001f600 \\ud800"}):
            self.assertEqual(json.loads(wire.encode(EVENT | {"data": data}))["data"], json.loads(json.dumps(data)))

    def test_attributes_that_nobody_could_read(self):
        for name, value, fault in (
            ("id", "k\0", "text without control characters, got one at byte 1"), ("subject", "é\n", "text without control characters, got one at byte 2"),
            ("subject", "n" * 8193, "at most 8192 bytes, got 8193"), ("subject", "é" * 4097, "at most 8192 bytes, got 8194"),
            ("tokenbudget", "\x9f", "text without control characters, got one at byte 0"), ("subject", "\ud800", "valid UTF-8, got half of a surrogate pair"),
            ("source", "", "a non-empty string, got nothing"), ("type", None, "a non-empty string, got nothing"), ("subject", 7, "a string, got int"),
        ):
            event = EVENT | {name: value}
            for do in (wire.encode, lambda event: wire.decode(json.dumps(event).encode())):
                with self.subTest(name=name, value=value), self.assertRaises(AgentdError) as caught:
                    do(event)
                self.assertEqual(caught.exception.code, "invalid_event")
                self.assertTrue(str(caught.exception).endswith(f"; $.{name}: expected {fault}"), caught.exception)
        whole = EVENT | {"subject": "é" * 4096, "accesscontrol": None, "rev": 7, "data": {}}
        self.assertEqual(wire.decode(wire.encode(whole)), {name: value for name, value in whole.items() if value is not None})

    def test_a_run_with_no_utf8(self):
        for do in (lambda: wire.run_key("\ud800"), lambda: wire.init_token("s", "\ud800")):
            with self.assertRaises(AgentdError) as caught:
                do()
            self.assertEqual(caught.exception.code, "invalid_event")

    def test_when_a_call_is_due(self):
        self.assertLess(wire.seconds_until("2020-01-01T00:00:00.000Z"), 0)
        self.assertGreater(wire.seconds_until("9999-12-31T23:59:59+01:00"), 0)
        for instant in (None, "", "soon", 5, "2020-01-01T00:00:00"):
            self.assertIsNone(wire.seconds_until(instant))

    def test_roots(self):
        with mock.patch.dict("os.environ", {"AGENTD_ROOT": ""}):
            self.assertEqual(wire.root_of(""), "agentd")
        with mock.patch.dict("os.environ", {"AGENTD_ROOT": "acme"}):
            self.assertEqual((wire.root_of(""), wire.root_of("other")), ("acme", "other"))
        self.assertEqual(wire.stream("acme", "DONE"), "ACME_DONE")
        for root in ("Acme", "a.b", "*", "a" * 65):
            with self.subTest(root=root), self.assertRaises(AgentdError) as caught:
                wire.root_of(root)
            self.assertEqual(caught.exception.code, "config")

    def test_headers(self):
        self.assertEqual(parse_headers(b"NATS/1.0 408 Request Timeout\r\nA: b:c\r\n\r\n"), ({"A": ["b:c"]}, 408))
        self.assertEqual(parse_headers(b"NATS/1.0\r\n\xff: 1\r\n\r\n"), ({"\ufffd": ["1"]}, 0))
        self.assertEqual(parse_headers(b""), ({}, 0))


if __name__ == "__main__":
    unittest.main()

"""Versions of a contract, and what is checked here."""

import importlib.util
import tempfile
import unittest
from pathlib import Path

from agentd import AgentdError, contract, files
from agentd.contract import Checks


class Versions(unittest.TestCase):
    def test_newest(self):
        for versions, newest in (
            (["1.9.0", "1.10.0", "1.2.3"], "1.10.0"), (["1.0.0", "2.0.0-rc.1"], "1.0.0"), (["1.0.0-rc.2", "1.0.0-rc.10", "1.0.0-beta"], "1.0.0-rc.10"),
            (["1.0.0-rc", "1.0.0-rc.1", "1.0.0-1"], "1.0.0-rc.1"), (["1.0.0+a"], "1.0.0+a"),
        ):
            with self.subTest(versions=versions):
                self.assertEqual(contract.newest({"versions": dict.fromkeys(versions)}), newest)


@unittest.skipUnless(importlib.util.find_spec("yaml"), "the package pyyaml is missing")
class Files(unittest.TestCase):
    """What the contract files of agentd say here is what they say there."""

    def read(self, text, suffix=".yaml"):
        with tempfile.NamedTemporaryFile("w", suffix=suffix, encoding="utf-8") as file:
            file.write(text)
            file.flush()
            return files.read(Path(file.name))

    def test_scalars(self):
        for text, want in (
            ("[NO, SE, yes, off, on, y, tRue]", ["NO", "SE", "yes", "off", "on", "y", "tRue"]), ("[true, True, TRUE, false]", [True, True, True, False]),
            ("[null, Null, NULL, ~, nUll]", [None, None, None, None, "nUll"]), ("[2026-01-01, 2026-01-01T10:00:00Z]", ["2026-01-01", "2026-01-01T10:00:00Z"]),
            ("[12:30:45, 1:30, 190:20:30.15]", ["12:30:45", "1:30", "190:20:30.15"]), ("[1.0.0, '1,000', =, ..5, 0x, 0b102, 1e, 0x1p4, inf, NaN]",
             ["1.0.0", "1,000", "=", "..5", "0x", "0b102", "1e", "0x1p4", "inf", "NaN"]),
            ("[012, 0o17, 0O17, 0x1f, -0x1f, 0b11, 1_000, 09, 00, +1, -1, 0x_1f]", [10, 15, 15, 31, -31, 3, 1000, 9, 0, 1, -1, 31]),
            ("[1., .5, -.5, 1.5e3, 1E+3, 0.1_5, 685_230.15, 08.5, 1e400]", [1.0, 0.5, -0.5, 1500.0, 1000.0, 0.15, 685230.15, 8.5, "1e400"]),
            ("['5', \"true\", !!str 5, !!int \"5\", !!float 5, !!timestamp 2026-01-01]", ["5", "true", "5", 5, 5, "2026-01-01"]), ("[12345678901234567890123]", [12345678901234567890123]),
        ):
            with self.subTest(text=text):
                got = self.read(f"enum: {text}")["enum"]
                self.assertEqual([(type(v), v) for v in got], [(type(v), v) for v in want])

    def test_keys_are_texts(self):
        text = "1.50: a\non: b\n2026-01-01: c\ntrue: d\n012: e\nx: &x [1]\ny: *x"
        self.assertEqual(self.read(text), {"1.50": "a", "on": "b", "2026-01-01": "c", "true": "d", "012": "e", "x": [1], "y": [1]})

    def test_what_agentd_does_not_read(self):
        for text, why in (
            ("a: 1\na: 2", ":2:1: key 'a' is set twice"), ("<<: {a: 1}", ":1:1: want a key that is text"), ("? [a]\n: 1", "want a key"), ("~: 1", "want a key"),
            ("a: .inf", ":1:4: '.inf' has no form in JSON"), ("a: .NaN", "no form"), ("a: !!binary aGk=", "no form"), ("a: !foo x", "no form"), ("a: <<", "no form"),
            ("a: 1_", "1_ is not a number of JSON"), ("a: 1__0", "not a number"), ("a: 1\n---\nb: 2", "not valid YAML"), ("", "the file is empty"),
            ("a: [", "not valid YAML"), ("a: &x [*x]", "at most 64 levels"), ("a: " + "[" * 65 + "]" * 65, "at most 64 levels"), ("a: " + "[" * 9999, "not valid YAML"),
        ):
            with self.subTest(text=text):
                with self.assertRaises(AgentdError) as caught:
                    self.read(text)
                self.assertEqual(caught.exception.code, "config")
                self.assertIn(why, caught.exception.message)

    def test_json_is_json(self):
        self.assertEqual(self.read('{"type": "on"}', ".json"), {"type": "on"})


@unittest.skipUnless(importlib.util.find_spec("jsonschema"), "the package jsonschema is missing")
class Dialects(unittest.TestCase):
    def faults(self, schema, data):
        return [fault["path"] for fault in Checks().faults("name", schema, data)]

    def test_a_schema_is_of_the_dialect_that_it_says(self):
        bound = {"minimum": 1, "exclusiveMinimum": True}  # of draft 4; later a number
        for declared in ("http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-04/schema", "https://json-schema.org/draft-04/schema#"):
            self.assertEqual(self.faults({"$schema": declared, "properties": {"days": bound}}, {"days": 1}), ["$.days"])
        pair = {"items": [{"type": "string"}]}  # of drafts up to 2019-09; then prefixItems
        for declared in ("http://json-schema.org/draft-06/schema#", "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2019-09/schema"):
            self.assertEqual(self.faults({"$schema": declared, "properties": {"pair": pair}}, {"pair": [1]}), ["$.pair[0]"])
        prefix = {"properties": {"pair": {"prefixItems": [{"type": "string"}]}}}
        self.assertEqual(self.faults({"$schema": "http://json-schema.org/draft-07/schema#"} | prefix, {"pair": [1]}), [])
        for declared in ({"$schema": "https://json-schema.org/draft/2020-12/schema"}, {}):
            self.assertEqual(self.faults(declared | prefix, {"pair": [1]}), ["$.pair[0]"])

    def test_multiples_are_those_of_decimals(self):
        for of, multiples, others in (
            (0.01, (0.07, 19.99, 4.35, 1.1, 0, -0.29, 3, 1e300, True, "x"), (0.075, 19.999, 1e-300)), (0.1, (0.3, 1.1, 10**400), (0.25, 0.30000000000000004)),
            (3, (9, 9.0, 3e30), (10, 1.5)), (1e-300, (1e300, 5e-300), (1e-301,)),
        ):
            for dialect in ("http://json-schema.org/draft-04/schema#", "https://json-schema.org/draft/2020-12/schema"):
                schema = {"$schema": dialect, "properties": {"n": {"multipleOf": of}}}
                for number in multiples + others:
                    with self.subTest(of=of, number=number, dialect=dialect):
                        self.assertEqual(self.faults(schema | {"$id": str(number)}, {"n": number}), ["$.n"] if number in others else [])
        self.assertEqual(self.faults({"multipleOf": 0.1}, float("nan")), [])

    def test_what_cannot_be_checked_here_is_said_once(self):
        checks = Checks()
        with self.assertLogs("agentd.service", "WARNING") as logged:
            for name in ("one", "two"):
                self.assertEqual(checks.faults(name, {"$schema": "https://example.org/own", "required": ["city"]}, {}), [])
            self.assertEqual(checks.faults("three", {"properties": {"city": {"pattern": r"^\p{L}+$"}}}, {"city": "Bern"}), [])
        self.assertEqual(len(logged.output), 2)
        self.assertIn("the dialect https://example.org/own is not known", logged.output[0])
        self.assertIn("$.properties.city.pattern", logged.output[1])
        self.assertEqual([fault["path"] for fault in checks.faults("four", {"required": ["city"]}, {})], ["$"])


if __name__ == "__main__":
    unittest.main()

"""Versions of a contract, and what is checked here."""

import importlib.util
import unittest

from agentd import contract
from agentd.contract import Checks


class Versions(unittest.TestCase):
    def test_newest(self):
        for versions, newest in (
            (["1.9.0", "1.10.0", "1.2.3"], "1.10.0"), (["1.0.0", "2.0.0-rc.1"], "1.0.0"), (["1.0.0-rc.2", "1.0.0-rc.10", "1.0.0-beta"], "1.0.0-rc.10"),
            (["1.0.0-rc", "1.0.0-rc.1", "1.0.0-1"], "1.0.0-rc.1"), (["1.0.0+a"], "1.0.0+a"),
        ):
            with self.subTest(versions=versions):
                self.assertEqual(contract.newest({"versions": dict.fromkeys(versions)}), newest)


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

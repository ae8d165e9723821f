// The test vectors that every implementation of the wire shares (docs/wire.md#test-vectors).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import * as wire from "../wire.js";

const vectors = JSON.parse(readFileSync(process.env.VECTORS ?? new URL("../../wire/testdata/wire.json", import.meta.url), "utf8"));

for (const [section, check] of Object.entries({
  runs: (v) => assert.equal(wire.runKey(v.subject), `${v.partition}.${v.token}`),
  inits: (v) => assert.equal(wire.initToken(v.source, v.id), v.token),
  terminals: (v) => assert.equal(wire.terminalID(v.subject, wire.initToken(v.source, v.init_id)), v.event_id),
  call_events: (v) => {
    const want = v.valid ? { call: v.call, attempt: v.attempt, domain: v.domain ?? "" } : null;
    assert.deepEqual(wire.callOf(v.event_id), want);
  },
  replies: (v) => assert.equal(wire.replySubject(v.delivered), v.reply),
})) {
  test(`the vectors of ${section}`, () => {
    assert.ok(vectors[section].length > 0);
    vectors[section].forEach(check);
  });
}

test("what is not an event is refused", () => {
  const bodies = ["", "[]", "7", "null", "{}", '{"specversion":"1.0","id":"1","source":"s"}', "[".repeat(100_000),
    '{"specversion":"1.0","id":"1","source":"s","type":"t","data":[]}', "\xff"];
  for (const body of bodies) {
    assert.throws(() => wire.decode(Buffer.from(body, "latin1")), { code: "invalid_event" }, body.slice(0, 40));
  }
});

test("an event whose attributes nobody could carry on is refused", () => {
  for (const [members, path] of [
    [{ accesscontrol: 7 }, "$.accesscontrol"], [{ subject: ["a"] }, "$.subject"], [{ traceparent: "a\nb" }, "$.traceparent"], [{ mine: {} }, "$.mine"],
    [{ id: 7 }, "$.id"], [{ source: "" }, "$.source"], [{ type: null }, "$.type"],
  ]) {
    const refused = ({ code, faults }) => code === "invalid_event" && faults.length === 1 && faults[0].path === path;
    assert.throws(() => wire.decode(Buffer.from(JSON.stringify(event(members)))), refused, path);
  }
  const read = event({ subject: null, mine: 1.5, yours: true, data: { a: [1] } });
  assert.deepEqual(wire.decode(Buffer.from(JSON.stringify(read))), read);
});

const event = (members) => ({ specversion: "1.0", id: "1", source: "s", type: "t", ...members });

test("what nobody could read is not sent", () => {
  const deep = (levels) => (levels > 1 ? { in: deep(levels - 1) } : {});
  const wide = (members) => ({ rows: Array.from({ length: members - 1 }, () => ({ a: 1 })) });
  const cycle = {};
  cycle.a = cycle;
  const refused = [{ a: 10n }, cycle, { a: "\ud800" }, { "\udfff": 1 }, { a: "\\\ud800" }, wide(10065), deep(65), deep(5000), { a: [[deep(62)]] },
    { a: NaN }, { a: [-Infinity] }, { a: new Map([["b", 1]]) }, [], "text", 7];
  for (const data of refused) assert.throws(() => wire.encode(event({ data })), { code: "invalid_event" });
  for (const data of [wide(10064), deep(64), { a: [deep(62)] }, { a: "\u{1f600} \\ud800 \\\\ud800" }, undefined]) {
    assert.deepEqual(JSON.parse(wire.encode(event({ data }))).data, data);
  }
});

test("attributes that nobody could read are not sent", () => {
  for (const [members, path] of [
    [{ id: "" }, "$.id"], [{ source: undefined }, "$.source"], [{ type: null }, "$.type"], [{ subject: "a\nb" }, "$.subject"],
    [{ id: "k\u0000" }, "$.id"], [{ accesscontrol: "\u0085" }, "$.accesscontrol"], [{ subject: `a${"é".repeat(4096)}` }, "$.subject"],
    [{ traceparent: { a: 1 } }, "$.traceparent"], [{ subject: 7 }, "$.subject"], [{ accesscontrol: true }, "$.accesscontrol"],
  ]) {
    assert.throws(() => wire.encode(event(members)), (e) => e.code === "invalid_event" && e.faults.length === 1 && e.faults[0].path === path, path);
  }
  wire.encode(event({ subject: "é".repeat(4096), data: { text: "a\nb" }, parentid: null, executionunits: 1.5 }));
});

test("a value is what its JSON says, or is refused", () => {
  class Money {
    toJSON() {
      return { euros: "0.05", left: undefined };
    }
  }
  assert.deepEqual(wire.object(new Money()), { euros: "0.05" });
  assert.deepEqual(wire.object({ at: new Date(0), none: undefined }), { at: "1970-01-01T00:00:00.000Z" });
  for (const value of [undefined, null, 7, "sunny", [1, 2], new Map([["a", 1]]), new Set(), { a: { b: NaN } }, { a: new Set([1]) }, { toJSON: () => [] }]) {
    assert.throws(() => wire.object(value), TypeError);
  }
});

test("the vectors of canonical", () => {
  assert.ok(vectors.canonical.length > 0);
  for (const { in: text, out } of vectors.canonical) assert.equal(wire.canonical(JSON.parse(text)), out);
});

test("a root is one token, and names its streams", () => {
  assert.equal(wire.stream(wire.root("acme"), "OUT"), "ACME_OUT");
  assert.equal(wire.root(""), process.env.AGENTD_ROOT ?? "agentd");
  for (const root of ["Acme", "a.b", "*", "é", "a".repeat(65)]) assert.throws(() => wire.root(root), { code: "config" });
});

test("what is forbidden is what the server says is, and not what has such a name", async () => {
  const request = (message) => wire.request({ isClosed: () => false, request: async () => { throw new Error(message); } }, "x", "");
  await assert.rejects(request("no responders: 'agentd.in.human_interaction.agentd_permission_request.desk'"), { name: "Unavailable", retryable: true });
  await assert.rejects(request(`Permissions Violation for Publish to "agentd.get.desk"`), { code: "permission_denied", retryable: false });
});

test("a time is one of RFC 3339", () => {
  for (const [text, want] of [
    ["1970-01-01T00:00:01Z", 1000], ["1970-01-01T01:00:00.5+01:00", 500], ["1970-01-01T00:00:00.123456789Z", 123], [5, NaN], ["5", NaN], ["2020", NaN],
    ["2020-01-01", NaN], ["2020-01-01T00:00:00", NaN], ["soon", NaN], [undefined, NaN], [null, NaN],
  ]) {
    assert.equal(wire.instant(text), want, String(text));
  }
});

test("an answer goes nowhere but where the call was delivered", () => {
  assert.throws(() => wire.replySubject("agentd.in.local.weather_forecast.desk.253.run.call"), { code: "invalid_event" });
});

test("names that are none", () => {
  for (const name of ["", ".", "a..b", "-a", "a b", "a.>", "*", "a".repeat(129), "é", null]) {
    assert.throws(() => wire.token(name), { code: "invalid_event" });
  }
});

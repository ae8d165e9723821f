// What a client refuses to send, because a run could not use it and nobody would be told.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Awaited, QUESTION, TURN, decisionOn, only, replyTo } from "../answers.js";
import { Client } from "../client.js";

const client = new Client({}, { who: "ann" }); // nothing of it reaches a broker
const run = { agent: "desk", name: "trip", init: "i" };

test("a message has 1 to 65536 bytes", async () => {
  for (const text of ["", undefined, 7, "é".repeat(32_769), "x".repeat(600_000)]) await assert.rejects(client.send(run, text), { code: "message_refused" });
});

test("a run that no worker could read is not started", async () => {
  for (const [data, options] of [
    [{}, { name: "a\nb" }], [{}, { key: "k\u0000" }], [{}, { name: "n".repeat(9000) }], [{}, { accessControl: "\u007f" }], [{ a: "\ud800" }, {}],
    [{}, { name: 4711 }], [{}, { name: 0 }], [{}, { key: 7 }], [{}, { key: 0 }], [{}, { type: 7 }], [{}, { accessControl: 7 }], [{}, { traceparent: true }],
    [{}, { tracestate: 7 }], [{}, { require: "send_mail" }], [{}, { require: [7] }], [{}, { require: [""] }], [{}, { token: 500 }], [{}, { require: { 0: "send_mail" } }],
    [{}, { tokens: -5 }], [{}, { tokens: 1.5 }], [{}, { tokens: "500" }], [{}, { tokens: NaN }], [{}, { tokens: 2 ** 60 }], [{}, { constraints: [] }],
    [{}, { constraints: "read_only" }], [{}, { constraints: { n: NaN } }], [{}, { constraints: { allow: ["x".repeat(9000)] } }], [{}, { tags: ["a"] }],
    [{}, { tags: { A: "1" } }], [{}, { tags: { a: "1,b=2" } }], [{}, { tags: { a: 7 } }], [{}, { tags: { a: "é".repeat(65) } }], [{}, { tags: new Map([["a", "1"]]) }],
    [{}, { tags: Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`k${i}`, ""])) }],
  ]) {
    await assert.rejects(client.start("desk", data, options), { code: "invalid_event", name: "AgentdError" }, JSON.stringify(options));
  }
  await assert.rejects(new Client({}, { source: 7 }).start("desk", {}), { code: "invalid_event" });
  for (const data of [undefined, "hello", [1], { a: 10n }, { a: NaN }]) await assert.rejects(client.start("desk", data), { code: "contract_violation" });
});

test("a run that is none is not asked about", async () => {
  for (const none of [{ agent: "desk", name: 4711 }, { agent: "desk", name: "" }, { agent: "desk" }, { agent: "desk", name: 4711, init: "i" }, { agent: 7, name: "trip" }]) {
    for (const method of ["status", "wait", "cancel", "asked"]) await assert.rejects(client[method](none), { code: "invalid_event" }, method);
    await assert.rejects(client.follow(none).next(), { code: "invalid_event" });
    await assert.rejects(client.send(none, "hello"), { code: "invalid_event" });
  }
  await assert.rejects(client.cancel(run, 7), { code: "invalid_event" });
});

test("answers to questions and turns", () => {
  const data = (type, text, end, given) => replyTo(type, text, end, given);
  assert.deepEqual(data(QUESTION, "in May", false), { answer: "in May" });
  assert.deepEqual(data(TURN, "go on", false), { message: "go on", end: false });
  assert.deepEqual(data(TURN, "", true), { message: "", end: true });
  assert.deepEqual(data(QUESTION, "", false, { seat: 7, color: "red" }), { answer: '{"color":"red","seat":7}', content: { seat: 7, color: "red" } });
  assert.deepEqual(data(QUESTION, undefined, false, {}), { answer: "{}", content: {} });
  assert.deepEqual(data(QUESTION, "", false, { answer: "no", seat: 7 }).content, { answer: "no", seat: 7 });
  for (const known of [{ action: "decline" }, { answer: "x", content: { seat: 7 } }]) assert.deepEqual(data(QUESTION, "", false, known), known);
  assert.deepEqual(data(TURN, "", false, { message: "go on" }), { message: "go on" });
  for (const refused of [
    [QUESTION, "", false], [QUESTION, 7, false], [TURN, { text: "hello" }, false], [QUESTION, " \n", false], [QUESTION, undefined, false], [TURN, "", false], [QUESTION, "bye", true],
    [QUESTION, "red", false, { color: "red" }], [TURN, "", true, { message: "bye" }], [QUESTION, "", false, ["red"]], [QUESTION, "", false, { n: NaN }],
  ]) {
    assert.throws(() => replyTo(...refused), { code: "contract_violation" }, JSON.stringify(refused));
  }
});

test("decisions say what they are on", () => {
  const one = { args_sha256: "a" }, batch = { args_sha256: "ab", calls: [{ call: "c1", args_sha256: "a" }, { call: "c2", args_sha256: "b" }] };
  assert.deepEqual(decisionOn(one, { decision: "allow" }), { decision: "allow", args_sha256: "a" });
  assert.deepEqual(decisionOn(one, { decision: "deny", args_sha256: "a", reason: "far" }), { decision: "deny", args_sha256: "a", reason: "far" });
  assert.deepEqual(decisionOn(batch, { decision: "allow", all: true }), { decision: "allow", all: true, args_sha256: "ab" });
  assert.deepEqual(decisionOn(batch, { decision: "allow", calls: [{ call: "c2" }, { call: "c1", decision: "deny" }] }), {
    decision: "allow", calls: [{ call: "c2", args_sha256: "b" }, { call: "c1", decision: "deny", args_sha256: "a" }],
  });
  assert.deepEqual(decisionOn(one, { decision: "allow", reason: null, calls: undefined, uses: 1 }), { decision: "allow", uses: 1, args_sha256: "a" });
  assert.deepEqual(decisionOn(batch, { decision: "allow", calls: [{ call: "c1", reason: null }] }), { decision: "allow", calls: [{ call: "c1", args_sha256: "a" }] });
  for (const [request, decision] of [
    [one, { decision: "alow" }], [one, {}], [one, { decision: "allow", args_sha256: "b" }], [one, { decision: "allow", all: true }],
    [one, { decision: "allow", calls: [{ call: "c1" }] }], [batch, { decision: "allow" }], [batch, { decision: "allow", all: true, calls: [{ call: "c1" }] }],
    [batch, { decision: "allow", all: true, args_sha256: "b" }], [batch, { decision: "allow", calls: [{ call: "c3" }] }],
    [batch, { decision: "allow", calls: [{ call: "c1", args_sha256: "b" }] }], [batch, { decision: "allow", calls: [{ call: "c1", decision: "dney" }] }],
    [one, { decision: "allow", use: 1 }], [one, { decision: "allow", reasn: null }], [batch, { decision: "allow", calls: [{ call: "c1", scope: "run" }] }],
    [batch, { decision: "allow", calls: "c1" }], [batch, { decision: "allow", calls: ["c1"] }],
  ]) {
    assert.throws(() => decisionOn(request, decision), { code: "decision_refused" }, JSON.stringify(decision));
  }
});

test("an answer is to one open call", () => {
  const waiting = [{ type: QUESTION, call: "c1", event: "c1-r2" }, { type: QUESTION, call: "c2", event: "c2" }, { type: TURN, call: "c3", event: "c3" }];
  assert.equal(only(run, waiting, "c1-r2", QUESTION), waiting[0]);
  assert.equal(only(run, waiting, "", TURN), waiting[2]);
  for (const [call, types] of [["", [QUESTION]], ["c3", [QUESTION]], ["", ["other"]]]) {
    assert.throws(() => only(run, waiting, call, ...types), { code: "unknown_run" });
  }
});

const id = `c1-0-${"a".repeat(26)}`, own = `${id}-r2-answer-0f`;
const outcome = (state, known) => ({ state, refused: "", open: false, allowed: 0, quorum: 0, rest: 0, queued: false, undecided: 0, ...known });

test("an answer counts where the run took it", () => {
  for (const [type, data, state] of [
    ["call.result", { call: id, event: own }, "counted"], ["call.result", { call: id, event: "another" }, "sent"],
    ["question.answered", { question: id, event: own }, "counted"], ["question.answered", { question: id, call: "c0", error: true }, "sent"],
    ["conversation.answer", { call: id, event: own }, "counted"], ["conversation.answer", { message: "May" }, undefined],
    ["call.opened", { call: id, event: own }, undefined], ["call.result", { call: id.replace("c1", "c2"), event: "another" }, undefined],
    ["question.answered", { question: "q", call: id }, undefined],
  ]) {
    assert.deepEqual(new Awaited(own).told(type, data), state && outcome(state), JSON.stringify([type, data]));
  }
  assert.equal(new Awaited("mine").told("call.result", { event: "another" }), undefined);
});

test("a decision counts where it does for one of its calls", () => {
  const decided = (members, { event = own, refused } = {}) => ({ decision: { event, refused }, ...members });
  for (const [told, want] of [
    [[decided({})], outcome("counted")], [[decided({}, { event: "another" })], undefined], [[decided({ more: true })], undefined],
    [[decided({}, { event: "another", refused: "unsigned" }), decided({ allowed: 1, quorum: 2 })], outcome("counted", { open: true, allowed: 1, quorum: 2 })],
    [[decided({ queued: true, undecided: 3 })], outcome("counted", { queued: true, undecided: 3 })],
    [[decided({ rest: 2 }, { refused: "unsigned" })], outcome("refused", { refused: "unsigned", open: true, rest: 2 })],
    [[decided({ more: true, rest: 2 }), decided({ rest: 1 }, { refused: "late" })], outcome("counted", { refused: "late", open: true, rest: 1 })],
  ]) {
    const awaited = new Awaited(own);
    assert.deepEqual(told.map((data) => awaited.told("permission.decided", data)).at(-1), want, JSON.stringify(told));
  }
});

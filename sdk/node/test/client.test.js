// What a client asks and publishes, and as whom.
import assert from "node:assert/strict";
import { test } from "node:test";

import { headers } from "@nats-io/transport-node";

import { Client } from "../client.js";

const run = { agent: "desk", name: "trip", init: "i" };

/** A connection on which a server answers requests, of which it has the subjects and events. */
function answering(answer) {
  const sent = [];
  const request = async (subject, body) => {
    sent.push([subject, body && JSON.parse(body)]);
    const value = await answer(subject);
    return { headers: value.headers, data: Buffer.from(JSON.stringify(value)), json: () => value };
  };
  return { request, isClosed: () => false, sent };
}

function refused(code) {
  const h = headers();
  h.set("Nats-Service-Error-Code", code);
  h.set("Nats-Service-Error", "somebody else started it");
  return { headers: h };
}

test("who did not start a run asks for it as somebody who may see all runs", async () => {
  const nc = answering((subject) => (subject === "agentd.get.desk" ? { status: "waiting", initiator: "bob" } : refused("permission_denied")));
  assert.equal((await new Client(nc, { who: "ann" }).status(run)).status, "waiting");
  assert.deepEqual(nc.sent.map(([subject]) => subject), ["agentd.get.desk.ann", "agentd.get.desk"]);

  const alone = answering((subject) => (subject === "agentd.get.desk.ann" ? { runs: [{ run: "own" }] } : refused("internal")));
  const listed = [];
  for await (const { run } of new Client(alone, { who: "ann" }).list("desk")) listed.push(run);
  assert.deepEqual(listed, ["own"]);
});

test("why somebody may not see a run is what was said to them", async () => {
  const client = (all) => new Client(answering((subject) => {
    if (subject === "agentd.get.desk.ann") return refused("permission_denied");
    if (all) return refused(all);
    throw new Error("Permissions Violation for Publish to agentd.get.desk");
  }), { who: "ann" });
  await assert.rejects(client().status(run), { code: "permission_denied", detail: "somebody else started it" });
  await assert.rejects(client("permission_denied").status(run), { code: "permission_denied", detail: "somebody else started it" });
  await assert.rejects(client("unavailable").status(run), { code: "unavailable" });
});

test("an operator cancels the run of somebody else under no name", async () => {
  const nc = answering((subject) => (subject === "agentd.get.desk.ops" ? refused("permission_denied") : { initiator: "bob" }));
  await new Client(nc, { who: "ops" }).cancel(run, "late");
  const [subject, event] = nc.sent.at(-1);
  assert.match(subject, /^agentd\.ctl\.cancel\.desk\.\d{3}\.[a-z2-7]{26}$/);
  assert.deepEqual(event.data, { reason: "late" });
  await new Client(nc, { who: "bob" }).cancel(run);
  assert.match(nc.sent.at(-1)[0], /\.bob$/);
});

test("an answer says where it goes", async () => {
  const question = { type: "agentd.question.ask", call: "c1", event: "c1", domain: "human.interaction", schema: "agentd:/agentd/question/ask/1.0.0" };
  const nc = answering((subject) => (subject.startsWith("agentd.get.") ? { waiting: [question] } : { seq: 1 }));
  const id = await new Client(nc, { who: "ann" }).answer(run, "in May");
  const [subject, event] = nc.sent.at(-1);
  assert.match(subject, /^agentd\.in\.human_interaction\.agentd_question_ask\.desk\.\d{3}\.[a-z2-7]{26}\.c1\.ann$/);
  assert.deepEqual([event.id, `${event.to}.ann`, event.parentid, event.dataschema, event.data], [id, subject, "c1", question.schema, { answer: "in May" }]);
});

test("what no stream takes may be taken later", async () => {
  const client = new Client(answering(() => ({ error: { code: 503, err_code: 10077, description: "maximum bytes exceeded" } })), { who: "ann" });
  await assert.rejects(client.start("desk", {}), { name: "Unavailable", code: "unavailable", retryable: true, message: /maximum bytes exceeded/ });
});

/** A connection on which the end of a run is looked for, and is what answer says. */
function waiting(answer) {
  const nc = answering(answer);
  nc.subscribe = () => ({ closed: new Promise(() => {}), unsubscribe() {}, getSubject: () => "" });
  return nc;
}

const end = { specversion: "1.0", id: "t", source: "desk", type: "desk.done", data: { response: "stored" } };

test("what the server has put in the place of an end is none", async () => {
  const acknowledged = { stream: "AGENTD_DONE", seq: 7 };
  const served = (own) => {
    const h = headers();
    for (const name of ["Nats-Stream", ...own]) h.set(name, "AGENTD_DONE");
    return Object.defineProperty({ ...acknowledged }, "headers", { value: h });
  };
  const answers = [served([]), end];
  assert.deepEqual((await new Client(waiting(() => answers.shift())).wait(run)).data, { response: "stored" });
  await assert.rejects(new Client(waiting(() => served(["Content-Type"]))).wait(run), { code: "invalid_event" });
});

test("who waits for long keeps nothing of it", async (t) => {
  let looks = 0;
  const { then } = Promise.prototype, reactions = new Map();
  t.mock.method(Promise.prototype, "then", function (...given) {
    reactions.set(this, (reactions.get(this) ?? 0) + 1);
    return then.apply(this, given);
  });
  const any = t.mock.method(AbortSignal, "any"); // each leaves a reference with the signals that it is of
  const nc = waiting(() => (++looks < 5 ? {} : end));
  await new Client(nc).wait(run, { signal: new AbortController().signal });
  assert.equal(looks, 5);
  assert.equal(any.mock.callCount(), 0);
  assert.ok(Math.max(0, ...reactions.values()) < 3, `one promise has ${Math.max(...reactions.values())} reactions`);
});

test("what is said of a run is in its init event", async () => {
  const nc = answering(() => ({ seq: 1 })), client = new Client(nc, { who: "ann" });
  await client.start("travel.desk", { message: "hello" }, {
    key: "k", require: ["send_*", "book"], tokens: 500, accessControl: "team", traceparent: "00-1", tracestate: "v=1",
    constraints: { read_only: true }, tags: { tenant: "acme", order: "7=8" },
  });
  const [subject, { time, ...event }] = nc.sent.at(-1);
  assert.equal(subject, "agentd.start.travel_desk.ann");
  assert.deepEqual(event, {
    specversion: "1.0", id: "k", source: "agentd.client", type: "travel.desk", subject: "run-4bnrzpe6pfdfbapaecytwkxhmi", datacontenttype: "application/json",
    data: { message: "hello" }, accesscontrol: "team", traceparent: "00-1", tracestate: "v=1", tokenbudget: "500", requirepermission: "send_*,book",
    constraints: '{"read_only":true}', tags: "order=7=8,tenant=acme",
  });
  await client.start("desk", {}, { key: "k", name: "trip" });
  assert.deepEqual(Object.keys(nc.sent.at(-1)[1]), ["specversion", "id", "source", "type", "subject", "time", "datacontenttype", "data"]);
});

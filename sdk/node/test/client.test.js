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

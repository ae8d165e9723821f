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

// When who follows a run asks for what was missed, and how they stop.
import assert from "node:assert/strict";
import { setImmediate as turn } from "node:timers/promises";
import { test } from "node:test";

import { Client } from "../client.js";

const run = { agent: "desk", name: "trip", init: "i" };
const live = (type, rev) => ({ type: `agentd.live.${type}`, rev, i: 0, count: 1, data: {} });

/** A connection that hears nothing, and on which workers tell of the milestones of a run. */
function silent(milestones = () => []) {
  const nc = {
    asked: 0, subscribed: 0, isClosed: () => false, isDraining: () => false, publish() {},
    status: () => ({ [Symbol.asyncIterator]: () => ({ next: () => new Promise(() => {}) }), stop() {} }),
    heard: {},
    subscribe(subject, { callback }) {
      nc.subscribed++;
      nc.heard[subject.split(".")[1]] = (of, event) => callback(null, {
        subject: of ?? subject, json: () => (typeof event === "string" ? JSON.parse(event) : event),
      });
      return { closed: new Promise(() => {}), unsubscribe: () => nc.subscribed-- };
    },
    async request() {
      nc.asked++;
      const told = await milestones();
      return Array.isArray(told) ? { json: () => ({ milestones: told }) } : told;
    },
  };
  return nc;
}

test("who stood still for longer than workers remember them asks for what was missed", async (t) => {
  t.mock.timers.enable({ apis: ["Date", "setInterval", "setTimeout"], now: 0 });
  const told = [], nc = silent(() => told.splice(0)), following = new Client(nc).follow(run);
  const next = following.next();
  const after = async (milliseconds, asked) => {
    t.mock.timers.tick(milliseconds);
    await turn();
    assert.equal(nc.asked, asked);
  };
  await after(0, 1);
  await after(5000, 2); // all workers know by now that somebody reads
  await after(5000, 2);
  await after(5000, 2);
  told.push(live("run.finished", 7));
  t.mock.timers.setTime(30_001);
  await after(5000, 3);
  assert.equal((await next).value.rev, 7);
  await following.return();
});

test("who cannot be told now asks again", async (t) => {
  t.mock.timers.enable({ apis: ["Date", "setInterval", "setTimeout"], now: 0 });
  for (const code of ["internal", "unavailable"]) {
    const answers = [{ headers: { get: () => code } }, [live("run.finished", 1)]], next = new Client(silent(() => answers.shift())).follow(run).next();
    await turn();
    await turn();
    t.mock.timers.tick(1000);
    assert.equal((await next).value.rev, 1, code);
  }
});

test("what somebody has delivered there is not told", async () => {
  const nc = silent(), { next, following } = await followed(nc);
  nc.heard.stream("agentd.in.local.other", live("run.started", 1));
  // The server itself answers a request on whatever reply subject that names.
  for (const body of ["", "+OK", "7", "null", "[]", '{"stream":"AGENTD_START","seq":7}', '{"type":7}']) nc.heard.stream(undefined, body);
  nc.heard.stream(undefined, live("run.finished", 1));
  assert.equal((await next).value.rev, 1);
  await following.return();
});

test("what became of an answer is told for so long", async (t) => {
  t.mock.timers.enable({ apis: ["Date", "setInterval", "setTimeout"], now: 0 });
  const told = (data) => [{ ...live("question.answered", 1), data }], id = "c1-answer-0f";
  assert.equal((await new Client(silent(() => told({ question: "c1", event: id }))).outcome(run, id)).state, "counted");
  const nc = silent(() => told({ question: "c1", event: "another" })), outcome = new Client(nc).outcome(run, id, { timeout: 7000 });
  while (nc.asked === 0) await turn();
  await turn();
  t.mock.timers.tick(7000);
  assert.equal((await outcome).state, "sent");
  assert.equal(nc.subscribed, 0);
  await assert.rejects(new Client(silent(() => ({ headers: { get: () => "permission_denied" } }))).outcome(run, id), { code: "permission_denied" });
});

/** Follows a run, in which nothing happens, until the first question about it is answered. */
async function followed(nc, options) {
  const following = new Client(nc).follow(run, undefined, options), next = following.next();
  while (nc.asked === 0) await turn();
  await turn();
  return { following, next };
}

for (const [when, nc] of Object.entries({ "the next event": () => silent(), "what was missed": () => silent(() => new Promise(() => {})) })) {
  test(`who waits for ${when} can stop`, async () => {
    const returned = await followed(nc());
    assert.deepEqual(await returned.following.return("enough"), { done: true, value: "enough" });
    assert.deepEqual(await returned.next, { done: true, value: undefined });

    const stopping = new AbortController(), stopped = nc(), { next, following } = await followed(stopped, { signal: stopping.signal });
    stopping.abort(new RangeError("mine"));
    await assert.rejects(next, { name: "RangeError", message: "mine" });
    assert.deepEqual(await following.next(), { done: true, value: undefined });
    assert.equal(stopped.subscribed, 0);
  });
}

test("who stops between events gets no further one", async () => {
  const milestones = () => [live("run.started", 1), live("model.reply", 2), live("run.finished", 3)];
  const stopping = new AbortController(), following = new Client(silent(milestones)).follow(run, undefined, { signal: stopping.signal });
  assert.equal((await following.next()).value.rev, 1);
  stopping.abort(new RangeError("mine"));
  await assert.rejects(following.next(), { name: "RangeError" });

  const nc = silent(milestones);
  for await (const { rev } of new Client(nc).follow(run)) if (rev === 2) break;
  assert.equal(nc.subscribed, 0);
  await assert.rejects(new Client(nc).follow(run, undefined, { signal: AbortSignal.abort(new RangeError("before")) }).next(), { message: "before" });
  assert.equal(nc.subscribed, 0);
});

// Starts, follows, answers, decides and cancels runs of the agent desk with sdk/node, and prints what it sees as JSON lines.
import { setTimeout as sleep } from "node:timers/promises";

import { Client, RunFailed, connect } from "agentd";

const say = (what, value) => console.log(JSON.stringify([what, value]));

async function untilAsked(run) {
  for (;;) {
    try {
      const [asked] = await client.asked(run);
      if (asked) return asked;
    } catch (error) {
      if (error.code !== "unknown_run") throw error;
    }
    await sleep(20);
  }
}

async function milestones(run) {
  const told = [];
  for await (const live of client.follow(run)) {
    if (!live.ephemeral && /^(run\.|call\.|model\.)/.test(live.type)) told.push(live.type);
  }
  return told;
}

const nc = await connect();
const client = new Client(nc);
const first = await client.start("desk", { message: "hello" }, { key: "trip-1" });
say("same run", JSON.stringify(first) === JSON.stringify(await client.start("desk", { message: "hello" }, { key: "trip-1" })));
say("asked", (await untilAsked(first)).asked.question);
const following = milestones(first);
await client.answer(first, "in May");
const { type, data, reason } = await client.wait(first);
say("result", [type, data, reason]);
say("milestones", await following);
say("again", JSON.stringify(await milestones(first)) === JSON.stringify(await following));

const held = await client.start("desk", { message: "hello" }, { require: ["weather_forecast"] });
await untilAsked(held);
await client.answer(held, "in May");
let request;
while ((request = await untilAsked(held)).type !== "agentd.permission.request") await sleep(20);
say("permission for", request.asked.tool);
await client.decide(held, "allow", { args_sha256: "0".repeat(64) }).catch((error) => say("other arguments", error.code));
await client.decide(held, "deny", { reason: "too far" });
say("denied", (await client.wait(held)).reason);

const planned = await client.start("planner", { message: "hello" });
const plan = await untilAsked(planned);
say("plan", [plan.type, plan.asked.args.steps[0].text]);
await client.decide(planned, "allow", { args: { steps: [{ step: 1, text: "Get the weather in Rome", tool: "weather_forecast" }] } });
for await (const live of client.follow(planned)) {
  if (live.type === "plan.created" && live.data.edited) say("edited", live.data.steps[0].text);
}
say("carried out", (await client.wait(planned)).reason);

const ended = await client.start("desk", { message: "hello" }, { name: "the third" });
await untilAsked(ended);
await client.cancel(ended, "changed my mind");
await client.wait(ended).catch((error) => say("cancelled", error instanceof RunFailed && [error.code, error.reason]));
const done = [];
for await (const run of client.list("desk", "done")) done.push(run.run);
say("done", done.sort().at(-1));
await client.status({ agent: "nobody", name: "x" }).catch((error) => say("no such agent", error.code));
await client.wait(await client.start("desk", { message: 7 })).catch((error) => say("refused", [error.code, error.faults]));
await nc.close();

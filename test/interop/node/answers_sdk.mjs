// Answers a question of the agent desk with data, and decides on its calls one by one, with sdk/node. It prints what is refused and what comes of
// it as JSON lines.
import { setTimeout as sleep } from "node:timers/promises";

import { Client, connect } from "agentd";

const say = (what, value) => console.log(JSON.stringify([what, value]));
const refused = (what, promise) => promise.then(() => say(what, "sent"), (error) => say(what, error.code));

async function untilAsked(run, type) {
  for (;;) {
    const asked = await client.asked(run).catch(() => []);
    const found = asked.find((w) => w.type === type);
    if (found) return found.asked;
    await sleep(20);
  }
}

const nc = await connect();
const client = new Client(nc);
const run = await client.start("desk", { message: "hello" });
const following = (async () => {
  for await (const { type, data } of client.follow(run)) {
    if (type === "call.result") say("result", JSON.stringify(data.data));
  }
})();
await untilAsked(run, "agentd.question.ask");
await refused("an empty answer", client.answer(run, ""));
await refused("a text and data", client.answer(run, "in May", { data: { month: "May" } }));
await client.answer(run, "", { data: { month: "May" } });
const { calls: [first, second] } = await untilAsked(run, "agentd.permission.request");
await refused("a decision on nothing", client.decide(run, "allow"));
await refused("a decision that is none", client.decide(run, "alow", { all: true }));
await client.decide(run, "allow", { calls: [{ call: first.call }, { call: second.call, decision: "deny", reason: "too far" }] });
await following;
say("done", (await client.wait(run)).reason);
await nc.close();

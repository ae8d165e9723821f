// Answers and decides what a run of the agent desk asks with sdk/node, and prints what the run makes of it as JSON lines.
import { setTimeout as sleep } from "node:timers/promises";

import { Client, connect } from "agentd";

const say = (what, outcome) => console.log(JSON.stringify([what, Object.fromEntries(Object.entries(outcome).filter(([, value]) => value))]));

async function untilAsked(run, type) {
  for (;;) {
    const asked = await client.asked(run).catch((error) => {
      if (error.code !== "unknown_run") throw error;
      return [];
    });
    if (asked.some((w) => w.type === type)) return;
    await sleep(20);
  }
}

const nc = await connect();
const client = new Client(nc);
const timeout = 60_000;
const run = await client.start("desk", { message: "hello" }, { require: ["weather_forecast"] });
await untilAsked(run, "agentd.question.ask");
const answer = await client.answer(run, "in May");
say("answered", await client.outcome(run, answer, { timeout }));
say("somebody else's", await client.outcome(run, `${answer}x`, { timeout }));
await untilAsked(run, "agentd.permission.request");
say("for the run", await client.outcome(run, await client.decide(run, "allow", { scope: "run+tool" }), { timeout }));
say("denied", await client.outcome(run, await client.decide(run, "deny"), { timeout }));
await client.wait(run);
say("later", await client.outcome(run, answer));
say("of no answer", await client.outcome(run, "another"));
await nc.close();

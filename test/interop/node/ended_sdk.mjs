// Waits for a run and follows it with sdk/node, until signals are aborted and the connection is closed, and prints what comes of it as JSON lines.
import { setTimeout as sleep } from "node:timers/promises";

import { Client, Service, connect } from "agentd";

/** Prints how something fails that goes on for ever otherwise. */
const say = (what, promise) => promise.then(
  (value) => console.log(JSON.stringify([what, value])),
  (error) => console.log(JSON.stringify([what, error.code && !(error instanceof DOMException) ? error.code : error.name])),
);

async function drain(events) {
  for await (const _ of events);
}

const nc = await connect();
const client = new Client(nc);
const run = await client.start("desk", { message: "hello" });
while (!(await client.status(run).catch(() => null))) await sleep(20);

await say("timed out", client.wait(run, { signal: AbortSignal.timeout(50) }));
const aborting = new AbortController();
const aborted = say("aborted", client.wait(run, { signal: aborting.signal }));
aborting.abort(new RangeError("mine"));
await aborted;
await say("aborted before", client.wait({ agent: "desk", name: run.name }, { signal: AbortSignal.abort(new RangeError("mine")) }));
await say("a name over two lines", client.start("desk", { message: "hello" }, { name: "a\nb" }));
await say("no message", client.send(run, ""));

const pending = [client.wait(run), client.wait({ agent: "desk", name: run.name }), client.wait({ agent: "desk", name: "another" }), drain(client.follow(run))]
  .map((promise) => say("closed", promise));
await client.status(run); // what they have asked before is answered
await nc.close();
await Promise.all(pending);
for (const late of [() => client.wait(run), () => drain(client.follow(run)), () => client.start("desk", {})]) await say("closed before", late());

const own = await connect();
const contract = { uri: "#/weather/forecast", type: "weather.forecast", versions: { "1.0.0": { accepts: {}, emits: { "weather.forecast.done": {} } } } };
const log = { info: (text) => text.startsWith("serving") && own.close(), warn() {}, error() {} };
await say("a service", new Service(contract, { log }).handle(async () => ({})).serve(own, new AbortController().signal));

// Looks at the runs trip and tour, which somebody else has started, and cancels the first, with sdk/node: as an operator, who may see all runs, and
// as somebody who may not. Prints what comes of it as JSON lines.
import { Client, connect } from "agentd";

const say = (what, promise) => promise.then(
  (value) => console.log(JSON.stringify([what, value])),
  (error) => console.log(JSON.stringify([what, error.code])),
);
const trip = { agent: "desk", name: "trip" }, tour = { agent: "desk", name: "tour" };

const nc = await connect();
const operator = new Client(nc, { who: "ops" });
await say("status", operator.status(trip).then(({ initiator }) => initiator));
await say("asked", operator.asked(tour).then((asked) => asked.length));
await operator.cancel(trip, "too late");
await say("cancelled", operator.wait(trip));
await nc.close();

const own = await connect({ user: "weather", pass: "cold" });
await say("not theirs", new Client(own).status(tour));
await own.close();

// Serves handlers of arvo-event-handler over NATS:
//
//   node bridge.mjs svc_local_com_weather_forecast ./forecast.mjs
//
// It reads calls from a durable consumer, gives them to the handler that the module exports by default, and publishes
// every event that comes back to the address the event itself names. NATS_URL, NATS_USER and NATS_PASSWORD say where.
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { connect, headers } from "@nats-io/transport-node";
import { jetstream, JetStreamApiError } from "@nats-io/jetstream";
import { createArvoEvent } from "arvo-core";

const ATTRIBUTES = new Set([
  "id", "source", "specversion", "type", "subject", "time", "datacontenttype", "dataschema", "data",
  "to", "accesscontrol", "redirectto", "executionunits", "traceparent", "tracestate",
]);

// The event of a message: what arvo-core knows are attributes, all else are extensions. createArvoEvent, unlike the
// constructor, takes a subject with spaces or percent signs: it encodes it.
function decode(message) {
  const members = Object.entries(message.json());
  const pick = (known) => Object.fromEntries(members.filter(([name]) => ATTRIBUTES.has(name) === known));
  return createArvoEvent(pick(true), pick(false));
}

async function publish(js, event) {
  const h = headers();
  h.set("Content-Type", "application/cloudevents+json");
  try {
    await js.publish(event.to, JSON.stringify(event), { headers: h, expect: { lastSubjectSequence: 0 } });
  } catch (error) {
    if (!(error instanceof JetStreamApiError) || error.code !== 10071) throw error; // there is an answer already
  }
}

async function serve(js, message, handler) {
  if (message.subject.split(".")[1] === "void") return message.ack(); // nobody waits for that call any more
  const working = setInterval(() => message.working(), 5000);
  try {
    let events;
    try {
      events = await handler.execute(decode(message));
    } catch (error) { // a violation: the call, or the answer, does not fit the contract, and never will
      console.error(`no answer to ${message.subject}: ${error.message}`);
      return message.term("violation");
    }
    for (const event of events) await publish(js, event);
    message.ack();
  } finally {
    clearInterval(working);
  }
}

const [consumer, module] = process.argv.slice(2);
const { default: handler } = await import(pathToFileURL(resolve(module)));
const nc = await connect({
  servers: process.env.NATS_URL, user: process.env.NATS_USER, pass: process.env.NATS_PASSWORD,
  inboxPrefix: "_INBOX_agentd_weather", maxReconnectAttempts: -1,
});
const js = jetstream(nc);
const calls = await js.consumers.get("AGENTD_OUT", consumer);
for await (const message of await calls.consume({ max_messages: 1 })) {
  try {
    await serve(js, message, handler);
  } catch (error) {
    console.error(`${message.subject} will be delivered again:`, error);
  }
}

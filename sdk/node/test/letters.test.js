// Dead letters of services.
import assert from "node:assert/strict";
import { test } from "node:test";

import { headers } from "@nats-io/transport-node";

import { deadLetter } from "../letters.js";

const problem = { code: "invalid_event", message: `invalid_event: not\nan  event: ${"é".repeat(2000)}` };

/** What is stored of a delivery, on a server that takes messages of less than so many bytes, and what it answers. */
async function stored({ reply, most = Infinity, answer = { stream: "AGENTD_DLQ", seq: 1 } }) {
  const h = headers(), sent = [];
  for (const [name, value] of [["Content-Type", "text/plain"], ["Nats-Msg-Id", "7"], ["agentd-redrives", "2"], ["Agentd-Settled", "no"], ["X", "1"], ["X", "2"]]) {
    h.append(name, value);
  }
  const nc = {
    isClosed: () => false,
    async request(subject, body, options) {
      if (body.length > most) throw new Error("max_payload size exceeded");
      sent.push([subject, String(body), Object.fromEntries([...options.headers])]);
      return { json: () => answer };
    },
  };
  await deadLetter(nc, "acme", "human_interaction.weather_forecast", { subject: "acme.out.x", reply, headers: h, data: Buffer.from("no event") }, problem);
  return sent.at(-1);
}

const here = "$JS.ACK.AGENTD_OUT_3.svc_local_weather_forecast.1.812.5.1700000000000000000.0";

test("what is no call is stored as it is, with what is wrong", async () => {
  const [subject, body, told] = await stored({ reply: here });
  assert.equal(subject, "acme.dlq.invalid_event.agentd_out_3.812.human_interaction.weather_forecast");
  assert.equal(body, "no event");
  const { "agentd-detail": [detail], ...rest } = told;
  assert.equal(detail, `invalid_event: not an event: ${"é".repeat(1009)}…`);
  assert.deepEqual(rest, {
    "Content-Type": ["text/plain"], "agentd-redrives": ["2"], X: ["1", "2"], "agentd-reason": ["invalid_event"], "agentd-subject": ["acme.out.x"],
    "Nats-Expected-Last-Subject-Sequence": ["0"],
  });
});

test("the delivery of a server with domains names its message too", async () => {
  const [subject] = await stored({ reply: "$JS.ACK.hub.ACC.AGENTD_OUT.svc_local_weather_forecast.1.812.5.1700000000000000000.0.x" });
  assert.equal(subject, "acme.dlq.invalid_event.agentd_out.812.human_interaction.weather_forecast");
});

test("what leaves no room for what is wrong is left out", async () => {
  const [, body, told] = await stored({ reply: here, most: 7 });
  assert.equal(body, "");
  assert.deepEqual(Object.keys(told).sort(), ["Nats-Expected-Last-Subject-Sequence", "agentd-detail", "agentd-omitted", "agentd-reason", "agentd-subject"]);
});

test("a dead letter that is there is as good", async () => {
  await stored({ reply: here, answer: { error: { err_code: 10071 } } });
  await assert.rejects(stored({ reply: here, answer: { error: { err_code: 10077, description: "no room" } } }), { code: "unavailable", retryable: true });
});

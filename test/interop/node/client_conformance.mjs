// A client for `agentd conformance --client`: does what each line of its input asks of sdk/node, and prints what comes of it.
import { createInterface } from "node:readline";

import { AgentdError, Client, connect } from "agentd";

const tell = (answer) => console.log(JSON.stringify(answer));

const nc = await connect();
const client = new Client(nc);

const requests = {
  start: async ({ do: _, agent, data, accesscontrol, ...options }) => ({ run: await client.start(agent, data, { ...options, accessControl: accesscontrol }) }),
  status: async ({ run }) => ({ status: await client.status(run) }),
  wait: async ({ run }) => ({ result: await client.wait(run) }),
  async list({ agent, status }) {
    const runs = [];
    for await (const run of client.list(agent, status)) runs.push(run.run);
    return { runs };
  },
  async follow({ run, after }) {
    for await (const { type, rev, i, ephemeral } of client.follow(run, after)) tell({ live: { type, rev, i, ephemeral } });
  },
  send: ({ run, text }) => client.send(run, text),
  cancel: ({ run, reason }) => client.cancel(run, reason),
  answer: ({ run, text, call, end }) => client.answer(run, text, { call, end }),
  decide: ({ run, decision, call, args_sha256 }) => client.decide(run, decision, { request: call, args_sha256 }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  try {
    const answer = await requests[request.do](request);
    tell(typeof answer === "object" ? answer : { done: true });
  } catch (error) {
    if (!(error instanceof AgentdError)) throw error;
    tell({ error: { code: error.code, message: error.detail, faults: error.faults } });
  }
}
await nc.close();

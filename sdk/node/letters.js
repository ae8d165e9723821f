// Dead letters: what a service is given that is no call (docs/wire.md#dead-letters).
import { headers as newHeaders } from "@nats-io/transport-node";

import { Unavailable } from "./errors.js";
import * as wire from "./wire.js";

// How many bytes of the reason in words are told.
const MAX_DETAIL = 2048;
const OURS = /^(nats-.*|agentd-(reason|detail|subject|omitted|settled))$/i;

/**
 * Stores a delivery that a service, which answers <domain>.<type>, cannot handle. Throws AgentdError: unavailable where it is not known to be
 * stored, permission_denied where the user may not store it.
 */
export async function deadLetter(nc, root, service, message, error) {
  const [stream, sequence] = delivered(message.reply);
  const subject = [root, "dlq", error.code, stream.toLowerCase(), sequence, service].join(".");
  const why = { "agentd-reason": error.code, "agentd-detail": line(error.message), "agentd-subject": message.subject };
  const own = [...(message.headers ?? [])].filter(([name]) => !OURS.test(name));
  try {
    await store(nc, subject, message.data, [...own, ...Object.entries(why)]);
  } catch (failed) {
    if (failed.code !== "too_large") throw failed;
    await store(nc, subject, "", Object.entries({ ...why, "agentd-omitted": "true" }));
  }
}

async function store(nc, subject, body, entries) {
  const headers = newHeaders();
  for (const [name, values] of entries) for (const value of [values].flat()) headers.append(name, value);
  headers.set("Nats-Expected-Last-Subject-Sequence", "0");
  const { error } = (await wire.request(nc, subject, body, { headers })).json();
  if (!error || error.err_code === wire.WRONG_LAST_SEQUENCE) return; // or it was stored by an earlier delivery
  throw new Unavailable(`the dead letter on ${subject} is refused: ${error.description}`);
}

/**
 * The stream and the sequence in it that the reply subject of a delivery names: $JS.ACK.<stream>.<consumer>.<deliveries>.<sequence> and three
 * more tokens, or, of later servers, with the domain and the account before the stream.
 */
function delivered(reply) {
  const tokens = reply.split("."), at = tokens.length === 9 ? 2 : 4;
  return [tokens[at], tokens[at + 3]];
}

/** A text as one line of a header. */
function line(text) {
  const bytes = Buffer.from(text.trim().replace(/\s+/g, " "));
  return bytes.length > MAX_DETAIL ? `${bytes.subarray(0, MAX_DETAIL).toString().replace(/\ufffd+$/, "")}…` : bytes.toString();
}

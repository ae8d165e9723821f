// Names, tokens, ids, subjects and events, as docs/wire.md has them.
import { createHash, randomBytes } from "node:crypto";

import { AgentdError, Unavailable, listed } from "./errors.js";

const NAME = /^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$/;
const ROOT = /^[a-z0-9_-]{1,64}$/;
const CALL = /^(c(?:0|[1-9][0-9]{0,5})-(?:0|[1-9][0-9]{0,3})-[a-z2-7]{26})(-r([1-9][0-9]{0,3}))?(?:-([A-Za-z0-9][A-Za-z0-9_-]{0,63}))?$/;
const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/i;
const ATTEMPT = /^r[0-9]+(-|$)/;
// JSON.stringify escapes no other code points so.
const LONE_SURROGATE = /(?<!\\)(?:\\\\)*\\ud[89a-f]/;
// CloudEvents keeps these out of attributes: they could forge a line of a header or a log.
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;
const MAX_ATTRIBUTE = 8192;
// Attributes that are texts; of others a reader takes numbers and booleans as well.
const TEXTS = new Set([
  "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "to", "accesscontrol", "redirectto", "parentid", "domain", "agent",
  "traceparent", "tracestate",
]);
// How deep data may nest, and how many object members it may have in total.
const MAX_DEPTH = 64, MAX_MEMBERS = 10064;
const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";

/** The server refuses with this code to store a second message on a subject. */
export const WRONG_LAST_SEQUENCE = 10071;

// With these codes the server says that a limit of JetStream or of the account is reached, and with the last one that a stream has not stored a
// message; its description says why: "maximum bytes exceeded" at a limit of the stream itself.
const EXHAUSTED = [10002, 10023, 10028, 10047], NOT_STORED = 10077;

/** Whether the server's refusal to store a message says that there is no room for it. */
export const isFull = ({ err_code, description }) =>
  EXHAUSTED.includes(err_code) || (err_code === NOT_STORED && String(description).startsWith("maximum "));

export const structured = { "Content-Type": "application/cloudevents+json" };

export function t26(...parts) {
  const digest = createHash("sha256");
  for (const part of parts) digest.update(part);
  let text = "", bits = 0, held = 0;
  for (const byte of digest.digest().subarray(0, 16)) {
    held = (held << 8) | byte;
    for (bits += 8; bits >= 5; bits -= 5) text += ALPHABET[(held >> (bits - 5)) & 31];
    held &= 31;
  }
  return text + ALPHABET[(held << (5 - bits)) & 31];
}

/** The two tokens "<p>.<run>" of a run's name. Throws AgentdError: invalid_event, for what is no text. */
export function runKey(subject) {
  textual(subject, "the name of a run");
  const partition = createHash("sha256").update(subject).digest()[0];
  return `${String(partition).padStart(3, "0")}.${t26(subject)}`;
}

/** The token of an init event. Throws AgentdError: invalid_event, for what is no text. */
export function initToken(source, id) {
  return t26(textual(source, "the source of an event"), "\0", textual(id, "the id of an event"));
}

function textual(value, what) {
  if (typeof value !== "string") throw new AgentdError("invalid_event", `${what} is a text, and not ${kind(value)}`);
  return value;
}

export const terminalID = (subject, init) => "t-" + t26(runKey(subject).split(".")[1], "\0", init);

/** The token of an agent's, type's or domain's name. Throws AgentdError: invalid_event. */
export function token(name) {
  if (typeof name !== "string" || name.length > 128 || !NAME.test(name)) {
    throw new AgentdError("invalid_event", `${JSON.stringify(name)} is not a name: want letters, digits, _, - and single dots`);
  }
  return name.replaceAll(".", "_");
}

export const domainToken = (domain) => (domain ? token(domain) : "local");

/** The first token of all subjects; without one, that of the environment. Throws AgentdError: config. */
export function root(name) {
  const given = name || process.env.AGENTD_ROOT || "agentd";
  if (!ROOT.test(given)) throw new AgentdError("config", `the root ${JSON.stringify(given)} is not of the form ${ROOT.source}`);
  return given;
}

/** The name of a stream: zone is what it holds. */
export const stream = (root, zone) => `${root.toUpperCase()}_${zone}`;

/** The call, attempt and domain token of a call's event id; null of another text. */
export function callOf(id) {
  const [, call, repeated, number = "1", domain = ""] = CALL.exec(id) ?? [];
  if (!call || (repeated && Number(number) < 2) || ATTEMPT.test(domain)) return null;
  return { call, attempt: Number(number), domain };
}

/** Where a call that was delivered on a subject is answered: nothing in the call itself may say so. */
export function replySubject(delivered) {
  const [root, kind, ...rest] = delivered.split(".");
  if (kind !== "out") throw new AgentdError("invalid_event", `${delivered} is not the subject of a call`);
  return [root, "in", ...rest].join(".");
}

/** An event in structured mode. Throws AgentdError: invalid_event, with every fault, for what nobody could read. */
export function encode(event) {
  let body, attributes, data;
  try {
    body = JSON.stringify(event, exact);
    ({ data, ...attributes } = JSON.parse(body));
  } catch (cause) {
    throw new AgentdError("invalid_event", `the event has no JSON: ${cause.message}`, { cause });
  }
  const faults = attributeFaults(attributes);
  if (data != null && !isObject(data)) faults.push({ path: "$.data", expected: "an object", got: kind(data) });
  if (faults.length > 0) {
    throw new AgentdError("invalid_event", `the event cannot be sent: ${listed(faults)}`, { faults });
  }
  const n = members(data);
  if (n > MAX_MEMBERS) throw new AgentdError("invalid_event", `$.data: expected at most ${MAX_MEMBERS} object members in total, got ${n}`);
  if (LONE_SURROGATE.test(body)) throw new AgentdError("invalid_event", "the event has no JSON in UTF-8: it has a lone surrogate");
  return body;
}

/** A value as its JSON has it, with its toJSON. Throws TypeError unless that is an object, and says all that the value does. */
export function object(value) {
  const plain = JSON.parse(JSON.stringify(value, exact) ?? "null");
  if (!isObject(plain)) throw new TypeError(`expected an object, got ${kind(value === undefined ? value : plain)}`);
  return plain;
}

/** For JSON.stringify, which puts something else in the place of what JSON does not have. */
function exact(name, value) {
  if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError(`JSON has no ${value}, which ${name || "it"} is`);
  if (value instanceof Map || value instanceof Set) {
    throw new TypeError(`JSON has no ${value.constructor.name}, which ${name || "it"} is: make an object or an array of it`);
  }
  return value;
}

/** Data that was parsed, as RFC 8785 writes it. */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (!isObject(value)) return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** What a value is, in words. */
export function kind(value) {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  return `${typeof value === "object" ? "an" : "a"} ${typeof value}`;
}

/** What keeps attributes from being those of an event. */
function attributeFaults(attributes) {
  const faults = [];
  for (const name of ["id", "source", "type"]) {
    if (!attributes[name]) faults.push({ path: `$.${name}`, expected: "a non-empty string", got: "nothing" });
  }
  for (const [name, value] of Object.entries(attributes)) {
    const path = `$.${name}`, bytes = typeof value === "string" ? Buffer.byteLength(value) : 0, control = CONTROL.exec(value);
    if (bytes > MAX_ATTRIBUTE) faults.push({ path, expected: `at most ${MAX_ATTRIBUTE} bytes`, got: String(bytes) });
    else if (TEXTS.has(name) && typeof value !== "string" && value !== null) faults.push({ path, expected: "a string", got: kind(value) });
    else if (typeof value === "object" && value !== null) faults.push({ path, expected: "a string, boolean, number or null", got: kind(value) });
    else if (control) faults.push({ path, expected: "text without control characters", got: `one at character ${control.index}` });
  }
  return faults;
}

/** How many object members data has. Throws AgentdError: invalid_event, where it nests too deep. */
function members(value, depth = 1) {
  if (typeof value !== "object" || value === null) return 0;
  if (depth > MAX_DEPTH) throw new AgentdError("invalid_event", `$.data: expected at most ${MAX_DEPTH} levels of nesting, got more`);
  const inner = Object.values(value);
  return inner.reduce((n, v) => n + members(v, depth + 1), Array.isArray(value) ? 0 : inner.length);
}

/** The event of a message that agentd wrote: it sends structured mode alone. Throws AgentdError: invalid_event. */
export function decode(message) {
  let event;
  try {
    event = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(message.data ?? message));
  } catch (cause) {
    throw new AgentdError("invalid_event", `the body is not a CloudEvent in structured mode: ${cause.message}`, { cause });
  }
  if (!isObject(event) || event.specversion !== "1.0") throw new AgentdError("invalid_event", "the event lacks specversion 1.0");
  const { data, ...attributes } = event, faults = attributeFaults(attributes);
  if (data != null && !isObject(data)) faults.push({ path: "$.data", expected: "an object", got: kind(data) });
  if (faults.length > 0) throw new AgentdError("invalid_event", `the event cannot be read: ${listed(faults)}`, { faults });
  return { ...event, data: data ?? {} };
}

/** When a time of RFC 3339 is, in Unix milliseconds; NaN of what is none, such as 5, in which Date.parse sees a year. */
export const instant = (text) => (typeof text === "string" && INSTANT.test(text) ? Date.parse(text) : NaN);

export const newID = (kind) => `${kind}-${randomBytes(13).toString("hex")}`;

/** A subscription that calls heard with each message. Throws Unavailable where the connection is closed. */
export function subscribe(nc, subject, heard) {
  try {
    return nc.subscribe(subject, { callback: (error, message) => error || heard(message) });
  } catch (cause) {
    throw closed({ cause });
  }
}

/** Why a subscription ended that nobody has ended here. */
export async function ended(subscription) {
  const cause = await subscription.closed;
  return cause ? failure(cause, `the subscription to ${subscription.getSubject()} ended`) : closed();
}

export const closed = (options) => new Unavailable("the connection to NATS is closed", { retryable: false, ...options });

/** A request whose failures are AgentdErrors: Unavailable, permission_denied, or too_large, which is not sent. */
export async function request(nc, subject, body, { headers, timeout = 5000 } = {}) {
  try {
    return await nc.request(subject, body, { headers, timeout });
  } catch (cause) {
    if (/max_payload/.test(cause.message)) {
      const message = `the message on ${subject} is larger than the server takes (${nc.info?.max_payload} bytes)`;
      throw new AgentdError("too_large", message, { cause });
    }
    throw nc.isClosed() ? closed({ cause }) : failure(cause, `no answer from ${subject}`);
  }
}

function failure(cause, what) {
  // Other errors name the subject, such as that of permission requests.
  if (/^permissions violation/i.test(cause.message)) return new AgentdError("permission_denied", cause.message, { cause });
  return new Unavailable(`${what}: ${cause.message}`, { cause });
}

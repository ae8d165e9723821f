// What whoever starts a run says of it, as attributes of its init event (docs/wire.md#attributes).
import { AgentdError, listed } from "./errors.js";
import * as wire from "./wire.js";

// The most tags of a run, and the most bytes of the value of one.
const MAX_TAGS = 16, MAX_TAG_VALUE = 128;
const TAG_KEY = /^[a-z0-9_.-]{1,32}$/;
const NOT_IN_TAG = /[,\u0000-\u001f\u007f-\u009f]/;

/** The attributes of what was given beside key, name and type. Throws AgentdError: invalid_event, with every fault. */
export function attributesOf({ require = [], tokens = 0, tags = {}, constraints, accessControl, traceparent, tracestate, ...unknown }) {
  const faults = [];
  const fault = (path, expected, got) => faults.push({ path, expected, got: shown(got) });
  for (const name of Object.keys(unknown)) fault(`$.${name}`, "require, tokens, constraints, tags, accessControl, traceparent or tracestate", name);
  if (!Array.isArray(require) || !require.every((pattern) => typeof pattern === "string" && pattern.trim() !== "")) {
    fault("$.require", "a list of patterns of tools", require);
  }
  if (!Number.isSafeInteger(tokens) || tokens < 0) fault("$.tokens", "a whole number of 0 or more", tokens);
  tagFaults(tags, fault);
  const bounds = constraints == null ? undefined : jsonOf(constraints);
  if (bounds === null) fault("$.constraints", "a JSON object", constraints);
  if (faults.length > 0) throw new AgentdError("invalid_event", `the run cannot be started: ${listed(faults)}`, { faults });
  return {
    accesscontrol: accessControl, traceparent, tracestate, tokenbudget: tokens ? String(tokens) : undefined,
    requirepermission: require.join(",") || undefined, constraints: bounds,
    tags: Object.keys(tags).sort().map((key) => `${key}=${tags[key]}`).join(",") || undefined,
  };
}

function tagFaults(tags, fault) {
  const given = Object.prototype.toString.call(tags) === "[object Object]" ? Object.entries(tags) : null;
  if (!given) return fault("$.tags", "an object of texts", tags);
  if (given.length > MAX_TAGS) fault("$.tags", `at most ${MAX_TAGS} tags`, given.length);
  for (const [key, value] of given) {
    if (!TAG_KEY.test(key)) fault("$.tags", `a key of ${TAG_KEY.source}`, key);
    if (typeof value !== "string" || Buffer.byteLength(value) > MAX_TAG_VALUE || NOT_IN_TAG.test(value)) {
      fault(`$.tags.${key}`, `at most ${MAX_TAG_VALUE} bytes of text without commas and control characters`, value);
    }
  }
}

/** An object as JSON; null is of what is none. */
function jsonOf(value) {
  try {
    return JSON.stringify(wire.object(value));
  } catch {
    return null;
  }
}

/** A value as a fault quotes it. */
function shown(value) {
  if (typeof value === "object") return wire.kind(value);
  const text = typeof value === "string" ? JSON.stringify(value) : String(value);
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}

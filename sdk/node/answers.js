// What a person answers to a run.
import { AgentdError } from "./errors.js";
import * as wire from "./wire.js";

export const PERMISSION = "agentd.permission.request", PLAN = "agentd.plan.review";
export const QUESTION = "agentd.question.ask", TURN = "agentd.conversation.turn";

const DECISIONS = ["allow", "deny", "ask", "result"];
// The other members of a decision, and those of what it says of one of several calls.
const TERMS = ["args_sha256", "calls", "all", "scope", "pattern", "args", "result", "reason", "uses", "expires"];
const CALL_TERMS = ["call", "args_sha256", "decision", "args", "result", "reason"];
// Milestones that tell the answer to a call.
const RESULTS = ["call.result", "question.answered", "conversation.answer"];
// Data of an answer to a question that has no other members is as it is on the wire; other data is what a form was filled in with.
const ANSWERED = ["answer", "action", "content"];

/** The data of the answer to a question or a turn. Throws AgentdError: contract_violation. */
export function replyTo(type, text, end, data) {
  if (text != null && typeof text !== "string") throw violation(`the answer is a text, and not a ${typeof text}`);
  if (data != null && (text || end)) throw violation("an answer is a text or data, not both");
  if (data != null) {
    const given = input(data, "the answer"), names = Object.keys(given);
    if (type === TURN || (names.length > 0 && names.every((name) => ANSWERED.includes(name)))) return given;
    return { answer: wire.canonical(given), content: given };
  }
  if (end && type !== TURN) throw violation("only a conversation has an end");
  if (!text?.trim() && !end) throw violation("the answer is empty");
  return type === TURN ? { message: text ?? "", end } : { answer: text };
}

/** Data that somebody gave, as its JSON has it. Throws AgentdError: contract_violation. */
export function input(data, what) {
  try {
    return wire.object(data);
  } catch (cause) {
    throw new AgentdError("contract_violation", `${what} is not a JSON object: ${cause.message}`, { cause });
  }
}

/**
 * A decision with the hashes of what the request asks for, where it has none of its own. Throws AgentdError: decision_refused, when it
 * is none, has other terms, is on other arguments, or does not say on which calls.
 */
export function decisionOn(request, { decision, ...given }) {
  const { calls = [], all = false, ...terms } = termsOf(given, TERMS);
  if (!Array.isArray(calls) || !calls.every((c) => typeof c === "object" && c !== null)) throw refused("calls is a list of {call: id}");
  const asked = request.calls ?? [], named = calls.length > 0;
  for (const said of [decision, ...calls.map((c) => c.decision || decision)]) {
    if (!DECISIONS.includes(said)) throw refused(`${JSON.stringify(said)} is not a decision: want allow, deny, ask or result`);
  }
  if (asked.length === 0 && (named || all)) throw refused("the request is for one call; decide on it without naming calls");
  if (asked.length > 0 && named === all) throw refused(`the request is for ${asked.length} calls; name those that you decide on, or all`);
  if (!named) return { decision, ...terms, args_sha256: sameHash(terms.args_sha256, request), ...(all ? { all } : {}) };
  return {
    decision, ...terms,
    calls: calls.map((given) => {
      const c = termsOf(given, CALL_TERMS);
      const one = asked.find(({ call }) => call === c.call);
      if (!one) throw refused(`the request does not ask for the call ${JSON.stringify(c.call)}`);
      return { ...c, args_sha256: sameHash(c.args_sha256, one) };
    }),
  };
}

/** What was given, without what has no value. Throws AgentdError: decision_refused, for a name that nobody would look at. */
function termsOf(given, names) {
  const unknown = Object.keys(given).filter((name) => !names.includes(name));
  if (unknown.length > 0) throw refused(`a decision has no ${unknown.join(", ")}; it has ${names.join(", ")}`);
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value != null));
}

function sameHash(given, { args_sha256 }) {
  if (given && given !== args_sha256) throw refused("the decision is on other arguments than those of the request; look at it again");
  return args_sha256;
}

/** The open call that is meant: the only one of the types, or the one of them that call names. */
export function only(run, waiting, call, ...types) {
  const meant = waiting.filter((w) => types.includes(w.type) && ["", w.call, w.event].includes(call));
  if (meant.length === 1) return meant[0];
  let why = `waits for ${meant.length} answers; name the call`;
  if (meant.length === 0) why = call ? `does not wait for an answer to ${call}, or no longer` : "does not wait for an answer";
  throw new AgentdError("unknown_run", `run ${run.name} ${why}`);
}

/** What became of an answer, in the form that Client.outcome has. */
const outcome = (state, known = {}) => ({ state, refused: "", open: false, allowed: 0, quorum: 0, rest: 0, queued: false, undecided: 0, ...known });

/** What the milestones of a run tell of one answer, which has an id of Client.answer or Client.decide. */
export class Awaited {
  #event;
  #call;
  #decided = [];

  constructor(event) {
    this.#event = event;
    this.#call = wire.callOf(event.replace(/-answer-[^-]*$/, ""))?.call;
  }

  /** What is known of an answer that is stored. */
  static sent = outcome("sent");

  /** What became of the answer, where this milestone is the last that had to be told of it; undefined else. */
  told(type, data) {
    if (type === "permission.decided" && data.decision.event === this.#event) {
      this.#decided.push(data); // of each call that the decision is on
      return data.more ? undefined : decided(this.#decided);
    }
    if (!RESULTS.includes(type)) return undefined;
    if (data.event === this.#event) return outcome("counted");
    // A call has one result: after somebody else's, or the end of the wait for one, this one comes too late.
    return this.#call && (data.question || data.call) === this.#call ? Awaited.sent : undefined;
  }
}

/** What became of a decision by what became of it for each call: it counts where it counts for one. */
function decided(told) {
  const counted = told.filter(({ decision }) => !decision.refused), most = (name) => Math.max(0, ...counted.map((d) => d[name] ?? 0));
  const refused = told.find(({ decision }) => decision.refused)?.decision.refused, rest = told.at(-1).rest ?? 0, quorum = most("quorum");
  return outcome(counted.length > 0 ? "counted" : "refused", {
    refused: refused ?? "", open: counted.length === 0 || quorum > 0 || rest > 0, allowed: most("allowed"), quorum, rest,
    queued: counted.some(({ queued }) => queued), undecided: most("undecided"),
  });
}

const violation = (message) => new AgentdError("contract_violation", message);
const refused = (message) => new AgentdError("decision_refused", message);

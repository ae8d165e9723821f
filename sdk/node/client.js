// Start runs, follow them, answer what they ask, and end them.
import { setTimeout as sleep } from "node:timers/promises";

import { headers as newHeaders } from "@nats-io/transport-node";

import { Awaited, PERMISSION, PLAN, QUESTION, TURN, decisionOn, input, only, replyTo } from "./answers.js";
import { AgentdError, RunFailed, Unavailable } from "./errors.js";
import { Following, told, unlessAborted } from "./following.js";
import { attributesOf } from "./starting.js";
import * as wire from "./wire.js";

const ASK_AGAIN = 1000;
// How long a run's end is waited for before it is looked for, at first and later: it is told before it is stored, and that may be missed.
const LOOK_FIRST = 10, LOOK_AGAIN = 5000;
// The most bytes of a message that is sent into a run.
const MAX_MESSAGE = 64 << 10;

/**
 * Starts and follows runs over a connection. who is the principal that the broker lets it be: by default the login's name. root is the
 * first token of its subjects: by default AGENTD_ROOT of the environment, and agentd without. A run is {agent, name, init}; without init it
 * is whoever started it.
 */
export class Client {
  constructor(nc, { who = nc.options?.user ?? "", source = "agentd.client", root = "" } = {}) {
    Object.assign(this, { nc, who, source, root: wire.root(root) });
  }

  /**
   * Starts a run, and returns when the broker has stored that. Who starts again with the same key gets the same run. terms are require, patterns
   * of tools that need permission in this run beyond the agent's policy; tokens, the most that it may use, 0 being any number; constraints, tags,
   * accessControl, traceparent and tracestate. Throws AgentdError: invalid_event or contract_violation for what no worker could read.
   */
  async start(agent, data, { key, name, type, ...terms } = {}) {
    const id = or(key, wire.newID("run")), init = wire.initToken(this.source, id);
    const run = { agent, name: or(name, `run-${init}`), init };
    await this.#store(this.#named(`${this.root}.start.${wire.token(agent)}`), {
      ...this.#event(id, or(type, agent), run.name, input(data, "the input")), ...attributesOf(terms),
    });
    return run;
  }

  /** How far a run is, as docs/wire.md says. Throws AgentdError: unknown_run, permission_denied, unavailable. */
  async status(run) {
    return this.#ask(run.agent, `{"run":${JSON.stringify(nameOf(run))},"after":{"rev":9223372036854775807,"i":0}}`);
  }

  /** The runs of an agent with a status ("" is any), as of status, in no order that means anything. */
  async *list(agent, status = "") {
    for (let cursor; ; ) {
      const page = await this.#ask(agent, JSON.stringify({ list: { status: status || undefined, cursor } }));
      yield* page.runs ?? [];
      if (!(cursor = page.next)) return;
    }
  }

  /**
   * Every milestone after the mark, once and in order, and ephemeral events as they come; until the run's end. Throws AgentdError:
   * unknown_run for a run whose history was removed, unavailable when the connection is closed, and the signal's reason. return() ends it
   * also while the next event is waited for.
   */
  follow(run, after = { rev: 0, i: 0 }, { signal } = {}) {
    const returning = new AbortController();
    const events = this.#follow(run, after, signal ? AbortSignal.any([signal, returning.signal]) : returning.signal, returning.signal);
    const end = events.return.bind(events); // which waits for the next event, as that of every async generator
    events.return = (value) => {
      returning.abort();
      return end(value);
    };
    return events;
  }

  async *#follow(run, after, signal, returned) {
    signal.throwIfAborted();
    const following = new Following(this.nc, this.root, address(run), after, signal);
    try {
      yield* following.events((mark) => this.#history(run, mark, signal));
    } catch (error) {
      if (!returned.aborted) throw error;
    } finally {
      following.close();
    }
  }

  /**
   * The result of a run, when it has ended: {type, data, reason}. Throws RunFailed when it ended with an error, AgentdError: unknown_run for
   * a run whose history was removed, unavailable when the connection is closed, and the signal's reason.
   */
  async wait(run, { signal } = {}) {
    return signal ? unlessAborted(signal, this.#outcome(run, signal)) : this.#outcome(run);
  }

  async #outcome(run, signal) {
    if (run.init) return this.#done(run, run.init, signal);
    for (;;) {
      signal?.throwIfAborted();
      const status = await this.#known(run);
      if (status?.terminal) return result(run, { ...status.terminal, terminationreason: status.reason });
      if (status?.purged) throw removed(run, status.reason, "history");
      if (status && !status.called) return this.#done(run, status.init, signal);
      if (status?.status === "done") throw removed(run, status.reason, "outcome");
      await sleep(ASK_AGAIN, undefined, { signal }); // its end goes to its caller; its status has it too
    }
  }

  /** How far a run is; null as long as nobody knows of it. */
  async #known(run) {
    try {
      return await this.status(run);
    } catch (error) {
      if (!notYet(error)) throw error;
      return null;
    }
  }

  /**
   * The result of a run that the init event with the token began, as it is stored: a subscription hears of it earlier, and also hears an end that
   * the stream refused.
   */
  async #done(run, init, signal) {
    const subject = `${this.root}.done.${address(run)}.${init}`;
    let heard = new AbortController(), over;
    const wake = () => heard.abort();
    const subscription = wire.subscribe(this.nc, subject, wake);
    wire.ended(subscription).then((why) => {
      over = why;
      wake();
    });
    signal?.addEventListener("abort", wake);
    try {
      for (let wait = LOOK_FIRST; ; wait = heard.signal.aborted ? LOOK_FIRST : Math.min(2 * wait, LOOK_AGAIN)) {
        signal?.throwIfAborted();
        heard = new AbortController();
        const stored = await this.#stored(subject);
        if (stored) return result(run, stored);
        if (over) throw over;
        await sleep(wait, null, { signal: heard.signal }).catch(() => {});
      }
    } finally {
      signal?.removeEventListener("abort", wake);
      subscription.unsubscribe();
    }
  }

  /** Sends a message into a run that did not ask. It returns when the broker has stored it. Throws AgentdError: message_refused. */
  async send(run, text) {
    const bytes = typeof text === "string" ? Buffer.byteLength(text) : 0;
    if (bytes === 0 || bytes > MAX_MESSAGE) {
      throw new AgentdError("message_refused", `the message has ${bytes} bytes; it must have 1 to ${MAX_MESSAGE}`);
    }
    return this.#control("message", run, { message: text }, this.who);
  }

  /** Asks a run to end. Whoever started it may, and an operator. */
  async cancel(run, reason = "") {
    if (typeof reason !== "string") throw new AgentdError("invalid_event", "the reason to cancel a run is a text");
    let who = this.who;
    try {
      if (((await this.status(run)).initiator ?? "") !== who) who = "";
    } catch (error) {
      if (!notYet(error)) throw error;
    }
    await this.#control("cancel", run, { reason }, who);
  }

  /** The questions, turns, permission requests and plans to approve that wait for a person: call, type, event, asked. */
  async asked(run) {
    return ((await this.status(run)).waiting ?? []).filter((w) => [PERMISSION, PLAN, QUESTION, TURN].includes(w.type));
  }

  /**
   * Answers the open question or turn of a run, or the one of several that call names. data is in place of a text: what the question's form
   * is filled in with, or as docs/wire.md#people has it. Returns the id of the answer when the broker has stored it; outcome tells whether
   * the run takes it. Throws AgentdError: contract_violation for an answer that is none.
   */
  async answer(run, text, { call = "", end = false, data } = {}) {
    const asked = only(run, await this.asked(run), call, QUESTION, TURN);
    const type = asked.type === TURN ? "agentd.conversation.answered" : "agentd.question.answered";
    return this.#reply(run, asked, type, replyTo(asked.type, text, end, data));
  }

  /**
   * Decides a permission request, or on a plan: allow, deny, ask or result; terms are those of docs/permissions.md#the-decision, where
   * args of a plan are its steps as they are to be done (docs/planning.md#approval-by-people). The decision is on the arguments that the
   * request shows now, unless args_sha256 says on which; on a request for several calls it names calls, or all. Returns the id of the
   * decision when the broker has stored it; outcome tells whether it counts. Throws AgentdError: decision_refused.
   */
  async decide(run, decision, { request = "", ...terms } = {}) {
    const asked = only(run, await this.asked(run), request, PERMISSION, PLAN);
    return this.#reply(run, asked, "agentd.permission.decided", decisionOn(asked.asked, { decision, ...terms }));
  }

  /**
   * What a run made of an answer or a decision, by the id that answer or decide has returned. Its state is counted; refused, which refused says
   * why; or sent, of which no more is known in so many milliseconds than that it is stored. Throws as follow does.
   */
  async outcome(run, id, { timeout = 10_000 } = {}) {
    const awaited = new Awaited(id), late = new AbortController(), timer = setTimeout(() => late.abort(), timeout);
    try {
      for await (const { type, data } of this.follow(run, undefined, { signal: late.signal })) {
        const known = awaited.told(type, data);
        if (known) return known;
      }
    } catch (error) {
      if (!late.signal.aborted || error !== late.signal.reason) throw error;
    } finally {
      clearTimeout(timer);
    }
    return Awaited.sent;
  }

  async #reply(run, asked, type, data) {
    const to = `${this.root}.in.${wire.domainToken(asked.domain)}.${wire.token(asked.type)}.${address(run)}.${asked.event}`;
    const event = { ...this.#event(wire.newID(`${asked.event}-answer`), type, run.name, data), dataschema: asked.schema, to, parentid: asked.event };
    await this.#store(this.#named(to), event);
    return event.id;
  }

  #control(verb, run, data, who) {
    const subject = `${this.root}.ctl.${verb}.${address(run)}`;
    return this.#store(who ? `${subject}.${who}` : subject, this.#event(wire.newID(verb), `agentd.run.${verb}`, run.name, data));
  }

  #event(id, type, subject, data) {
    return { specversion: "1.0", id, source: this.source, type, subject, time: new Date().toISOString(), datacontenttype: "application/json", data };
  }

  #named(subject) {
    return this.who ? `${subject}.${this.who}` : subject;
  }

  /** Publishes to a stream. It is repeat-safe, because the event's id is its identity: what is lost is sent again. */
  async #store(subject, event) {
    const headers = newHeaders();
    headers.set("Content-Type", wire.structured["Content-Type"]);
    const body = wire.encode(event);
    for (let attempt = 0; ; attempt++) {
      let refusal;
      try {
        refusal = (await wire.request(this.nc, subject, body, { headers })).json().error;
      } catch (error) {
        if (!(error instanceof Unavailable) || attempt === 4 || !error.retryable) throw error;
        await sleep(200 * 2 ** attempt);
        continue;
      }
      if (refusal) throw new Unavailable(`${subject} is not stored: ${refusal.description}`);
      return;
    }
  }

  /** Asks for the runs that it started, and for others only where its user may see all of them: a list then has its own runs alone. */
  async #ask(agent, query) {
    const all = `${this.root}.get.${wire.token(agent)}`, own = this.#named(all);
    try {
      return await this.#asked(own, query);
    } catch (error) {
      if (error.code !== "permission_denied" || own === all) throw error;
      return this.#asked(all, query).catch((other) => {
        throw other.code === "permission_denied" ? error : other;
      });
    }
  }

  async #asked(subject, query) {
    const answer = await wire.request(this.nc, subject, query, { timeout: 10_000 });
    const code = answer.headers?.get("Nats-Service-Error-Code"), text = answer.headers?.get("Nats-Service-Error");
    if (code) throw code === "unavailable" ? new Unavailable(text) : new AgentdError(code, text);
    return answer.json();
  }

  async *#history(run, after, signal) {
    for (;;) {
      let page;
      try {
        page = await unlessAborted(signal, this.#ask(run.agent, JSON.stringify({ run: run.name, after })));
      } catch (error) {
        if (error.code === "unknown_run") return; // it has not begun
        throw error;
      }
      if (page.purged) throw removed(run, page.reason, "history");
      const lives = (page.milestones ?? []).map(told);
      yield* lives;
      if (!page.more || lives.length === 0) return;
      after = { rev: lives.at(-1).rev, i: lives.at(-1).i };
    }
  }

  async #stored(subject) {
    try {
      const found = await wire.request(this.nc, `$JS.API.DIRECT.GET.${wire.stream(this.root, "DONE")}.${subject}`, "");
      return found.headers?.hasError || found.data.length === 0 ? null : endIn(found);
    } catch (error) {
      if (error.code === "unavailable") return null;
      throw error;
    }
  }
}

/** Whether a run is not known yet, or nobody is there now who knows it. */
const notYet = (error) => error.code === "unknown_run" || (error instanceof Unavailable && error.retryable);

const address = (run) => `${wire.token(run.agent)}.${wire.runKey(nameOf(run))}`;

function nameOf({ name }) {
  if (typeof name !== "string" || name === "") throw new AgentdError("invalid_event", "the name of a run is a text that is not empty");
  return name;
}

/** A value, or another where there is none. */
const or = (value, other) => (value == null || value === "" ? other : value);

/**
 * The event in a stored message; null of what the server itself has put there: it answers a request on whatever reply subject that names. No
 * program publishes events without a header.
 */
function endIn(message) {
  try {
    return wire.decode(message);
  } catch (error) {
    if (message.headers?.keys().some((name) => !/^nats-/i.test(name))) throw error;
    return null;
  }
}

function removed(run, reason, what) {
  return new AgentdError("unknown_run", `run ${run.name} is done (${reason}), and its ${what} was removed`);
}

function result(run, event) {
  const { type, data, terminationreason: reason = "" } = event;
  if (/^sys\..*\.error$/.test(type)) throw new RunFailed(run.name, AgentdError.of(data), reason);
  return { type, data, reason };
}

// Start runs, follow them, answer what they ask, and end them.
import { setTimeout as sleep } from "node:timers/promises";

import { headers as newHeaders } from "@nats-io/transport-node";

import { AgentdError, RunFailed, Unavailable } from "./errors.js";
import * as wire from "./wire.js";

const ASK_AGAIN = 1000, BUFFER = 1024, WATCH_EVERY = 5000;
const PERMISSION = "agentd.permission.request", PLAN = "agentd.plan.review", QUESTION = "agentd.question.ask", TURN = "agentd.conversation.turn";

/**
 * Starts and follows runs over a connection. who is the principal that the broker lets it be: by default the login's name. A run is
 * {agent, name, init}; without init it is whoever started it.
 */
export class Client {
  constructor(nc, { who = nc.options?.user ?? "", source = "agentd.client", root = "agentd" } = {}) {
    Object.assign(this, { nc, who, source, root });
  }

  /**
   * Starts a run, and returns when the broker has stored that. Who starts again with the same key gets the same run. require are
   * patterns of tools that need permission in this run, beyond the agent's policy.
   */
  async start(agent, data, { key = wire.newID("run"), name = "", type = agent, require = [], tokens = 0, accessControl, traceparent } = {}) {
    const init = wire.initToken(this.source, key);
    const run = { agent, name: name || `run-${init}`, init };
    await this.#store(this.#named(`${this.root}.start.${wire.token(agent)}`), {
      ...this.#event(key, type, run.name, data), accesscontrol: accessControl, traceparent,
      tokenbudget: tokens ? String(tokens) : undefined, requirepermission: require.length > 0 ? require.join(",") : undefined,
    });
    return run;
  }

  /** How far a run is, as docs/wire.md says. Throws AgentdError: unknown_run, permission_denied, unavailable. */
  status(run) {
    return this.#ask(run.agent, `{"run":${JSON.stringify(run.name)},"after":{"rev":9223372036854775807,"i":0}}`);
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
   * unknown_run for a run whose history was removed.
   */
  async *follow(run, after = { rev: 0, i: 0 }) {
    const waiting = [];
    let lost = true, wake = () => {}; // what is between the mark and now
    const subscription = this.nc.subscribe(`${this.root}.stream.${address(run)}`, {
      callback: (_, m) => {
        if (!m) return;
        if (waiting.push(m) > BUFFER) lost = waiting.splice(0).length > 0;
        wake();
      },
    });
    // Workers tell who announces that they read. What was told before all workers knew was missed.
    const announce = () => {
      if (!this.nc.isClosed()) this.nc.publish(`${this.root}.watch.${address(run)}`);
    };
    let known = false;
    const again = () => {
      [lost, known] = [true, false];
      announce();
      wake();
    };
    const asked = this.nc.subscribe(`${this.root}.watch.ask`, { callback: (_, m) => m && again() });
    announce();
    const renewing = setInterval(() => {
      [lost, known] = [lost || !known, true];
      announce();
    }, WATCH_EVERY);
    const statuses = this.nc.status();
    (async () => {
      for await (const s of statuses) if (s.type === "reconnect") again();
    })();
    let at = after, whole = after.rev === 0;
    const tell = (live) => {
      [at, whole] = [{ rev: live.rev, i: live.i }, live.i + 1 === live.event.count];
      return live;
    };
    try {
      for (;;) {
        if (lost) {
          lost = false;
          try {
            for await (const live of this.#history(run, at)) {
              yield tell(live);
              if (live.type === "run.finished") return;
            }
          } catch (error) {
            if (!(error instanceof Unavailable)) throw error;
            lost = true;
          }
        }
        if (waiting.length === 0) {
          await new Promise((resolve) => {
            const timer = setTimeout(resolve, ASK_AGAIN);
            wake = () => {
              clearTimeout(timer);
              resolve();
            };
          });
          wake = () => {};
        }
        for (let m; !lost && (m = waiting.shift()); ) {
          const live = told(m.json());
          if (live.ephemeral) yield live;
          else if (live.rev < at.rev || (live.rev === at.rev && live.i <= at.i)) continue;
          else if ((live.rev === at.rev && live.i === at.i + 1) || (whole && live.rev === at.rev + 1 && live.i === 0)) {
            yield tell(live);
            if (live.type === "run.finished") return;
          } else lost = true; // something is between the two, or may be
        }
      }
    } finally {
      clearInterval(renewing);
      subscription.unsubscribe();
      asked.unsubscribe();
      statuses.stop?.();
    }
  }

  /**
   * The result of a run, when it has ended: {type, data, reason}. Throws RunFailed when it ended with an error, AgentdError: unknown_run for
   * a run whose history was removed, and the signal's reason.
   */
  async wait(run, { signal } = {}) {
    let init = run.init;
    while (!init) {
      signal?.throwIfAborted();
      let status;
      try {
        status = await this.status(run);
      } catch (error) {
        if (error.code !== "unknown_run" && error.code !== "unavailable") throw error;
        await sleep(ASK_AGAIN, undefined, { signal });
        continue;
      }
      const { terminal, purged, called, reason } = status;
      if (terminal) return result(run, { ...terminal, terminationreason: reason });
      if (purged) throw removed(run, reason, "history");
      if (!called) ({ init } = status);
      else if (status.status === "done") throw removed(run, reason, "outcome");
      else await sleep(ASK_AGAIN, undefined, { signal }); // its end goes to its caller; its status has it too
    }
    const subject = `${this.root}.done.${address(run)}.${init}`;
    let heard = () => {};
    const subscription = this.nc.subscribe(subject, { callback: (_, m) => m && heard(m) });
    try {
      for (;;) {
        signal?.throwIfAborted();
        const next = new Promise((resolve) => { heard = resolve; });
        const stored = await this.#stored(subject);
        if (stored) return result(run, stored);
        const pause = new AbortController();
        const message = await Promise.race([next, sleep(30_000, null, { signal: AbortSignal.any([pause.signal, ...(signal ? [signal] : [])]) })]);
        pause.abort();
        if (message) return result(run, wire.decode(message));
      }
    } finally {
      subscription.unsubscribe();
    }
  }

  /** Sends a message into a run that did not ask. It returns when the broker has stored it. */
  send(run, text) {
    return this.#control("message", run, { message: text }, this.who);
  }

  /** Asks a run to end. Whoever started it may, and an operator. */
  async cancel(run, reason = "") {
    let who = this.who;
    try {
      if (((await this.status(run)).initiator ?? "") !== who) who = "";
    } catch (error) {
      if (error.code !== "unknown_run" && error.code !== "unavailable") throw error;
    }
    await this.#control("cancel", run, { reason }, who);
  }

  /** The questions, turns, permission requests and plans to approve that wait for a person: call, type, event, asked. */
  async asked(run) {
    return ((await this.status(run)).waiting ?? []).filter((w) => [PERMISSION, PLAN, QUESTION, TURN].includes(w.type));
  }

  /** Answers the open question or turn of a run, or the one of several that call names. Returns the id of the answer. */
  async answer(run, text, { call = "", end = false, data } = {}) {
    const asked = only(await this.asked(run), call, QUESTION, TURN);
    if (asked.type === TURN) return this.#reply(run, asked, "agentd.conversation.answered", data ?? { message: text, end });
    return this.#reply(run, asked, "agentd.question.answered", data ?? { answer: text });
  }

  /**
   * Decides a permission request, or on a plan: allow, deny, ask or result; terms are those of docs/permissions.md#the-decision, where
   * args of a plan are its steps as they are to be done (docs/planning.md#approval-by-people). The decision is on the arguments that the
   * request shows now, unless args_sha256 says on which. Returns the id of the decision.
   */
  async decide(run, decision, { request = "", ...terms } = {}) {
    const asked = only(await this.asked(run), request, PERMISSION, PLAN);
    const { args_sha256 } = asked.asked;
    if ((terms.args_sha256 ??= args_sha256) !== args_sha256) {
      throw new AgentdError("decision_refused", "the decision is on other arguments than those of the request; look at it again");
    }
    return this.#reply(run, asked, "agentd.permission.decided", { decision, ...terms });
  }

  async #reply(run, asked, type, data) {
    const event = { ...this.#event(wire.newID(`${asked.event}-answer`), type, run.name, data), dataschema: asked.schema, parentid: asked.event };
    const tokens = `${wire.domainToken(asked.domain)}.${wire.token(asked.type)}.${address(run)}.${asked.event}`;
    await this.#store(this.#named(`${this.root}.in.${tokens}`), event);
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
      try {
        const { error } = (await wire.request(this.nc, subject, body, { headers })).json();
        if (error) throw new AgentdError("unavailable", `${subject} is not stored: ${error.description}`);
        return;
      } catch (error) {
        if (!(error instanceof Unavailable) || attempt === 4) throw error;
        await sleep(200 * 2 ** attempt);
      }
    }
  }

  async #ask(agent, query) {
    const answer = await wire.request(this.nc, this.#named(`${this.root}.get.${wire.token(agent)}`), query, { timeout: 10_000 });
    const code = answer.headers?.get("Nats-Service-Error-Code");
    if (code) throw new AgentdError(code, answer.headers.get("Nats-Service-Error"));
    return answer.json();
  }

  async *#history(run, after) {
    for (;;) {
      let page;
      try {
        page = await this.#ask(run.agent, JSON.stringify({ run: run.name, after }));
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
      const found = await wire.request(this.nc, `$JS.API.DIRECT.GET.AGENTD_DONE.${subject}`, "");
      return found.headers?.hasError || found.data.length === 0 ? null : wire.decode(found);
    } catch (error) {
      if (error.code === "unavailable") return null;
      throw error;
    }
  }
}

const address = (run) => `${wire.token(run.agent)}.${wire.runKey(run.name)}`;

function only(asked, call, ...types) {
  const meant = asked.filter((w) => types.includes(w.type) && ["", w.call, w.event].includes(call));
  if (meant.length !== 1) {
    throw new AgentdError("unknown_run", `the run waits for ${meant.length} such answers${meant.length ? "; name the call" : ""}`);
  }
  return meant[0];
}

function removed(run, reason, what) {
  return new AgentdError("unknown_run", `run ${run.name} is done (${reason}), and its ${what} was removed`);
}

function told(event) {
  const { type, data = {}, rev = 0, i = 0, ephemeral = false } = event;
  return { type: type.replace(/^agentd\.live\./, ""), data, rev, i, ephemeral, event };
}

function result(run, event) {
  const { type, data, terminationreason: reason = "" } = event;
  if (/^sys\..*\.error$/.test(type)) throw new RunFailed(run.name, AgentdError.of(data), reason);
  return { type, data, reason };
}

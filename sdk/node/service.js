// Serve a contract: answer the calls that agents make.
import { setMaxListeners } from "node:events";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { createInbox, headers as newHeaders } from "@nats-io/transport-node";

import { connect } from "./connect.js";
import { AgentdError, Unavailable } from "./errors.js";
import * as wire from "./wire.js";

// A delivery lasts 14.3 s unless it is extended.
const HEARTBEAT = 5000, PULL = 30_000;
// How long a call may wait here for a slot before others are given it.
const PATIENCE = 1000;
// The server says with these codes that it has no such stream, or no such consumer.
const MISSING = [10059, 10014];
// The server refuses to store a second answer on a reply subject with this code.
const WRONG_LAST_SEQUENCE = 10071;

/**
 * Answers the calls of a contract: its JSON as in docs/wire.md, or the path of a file with it. With the package ajv, calls and
 * answers are checked against it here as well; agentd checks both anyway.
 */
export class Service {
  #handlers = new Map();
  #checks = new Map();

  constructor(contract, { slots = 16, hearVoids = true, log = console } = {}) {
    this.contract = typeof contract === "string" ? JSON.parse(readFileSync(contract, "utf8")) : contract;
    Object.assign(this, { type: this.contract.type, domain: this.contract.domain ?? "", slots, hearVoids, log });
  }

  /** Sets the handler of a version, or of every version that has none of its own: async (call, data, signal) => the answer's data. */
  handle(version, handler) {
    if (typeof version === "function") [version, handler] = ["", version];
    if (version && !this.contract.versions[version]) {
      throw new TypeError(`${this.type} has no version ${version}: it has ${Object.keys(this.contract.versions).join(", ")}`);
    }
    this.#handlers.set(version, handler);
    return this;
  }

  /** Serves until SIGTERM or SIGINT, and then until the calls in hand are answered. options are those of connect. */
  async run(options = {}) {
    const ending = new AbortController();
    for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => ending.abort());
    const nc = await connect({ name: this.type, ...options });
    try {
      await this.serve(nc, ending.signal);
    } finally {
      await nc.close();
    }
  }

  /** Serves on a connection until the signal is aborted, and then until the calls in hand are answered. */
  serve(nc, signal) {
    return new Serving(this, nc, signal).run();
  }

  /** The type and data of the answer to a call. */
  async answer(call, signal) {
    const definition = this.contract.versions[call.version];
    const handler = this.#handlers.get(call.version) ?? this.#handlers.get("");
    if (!definition || !handler) {
      throw new AgentdError("contract_missing", `version ${call.version} of ${this.type} is not served here`);
    }
    const faults = await this.#faults(`${call.version} accepts`, definition.accepts, call.data);
    if (faults.length > 0) throw new AgentdError("contract_violation", "the data does not fit the contract", { faults });
    const { $type, ...data } = (await handler(call, call.data, signal)) ?? {};
    const types = Object.keys(definition.emits), type = $type ?? types[0];
    if (!types.includes(type)) throw new TypeError(`the handler's $type is ${type}; want ${types.join(" or ")}`);
    const own = await this.#faults(`${call.version} ${type}`, definition.emits[type], data);
    if (own.length > 0) throw new TypeError(`the answer does not fit ${type}: ${JSON.stringify(own)}`);
    return { type, data };
  }

  async #faults(name, schema, data) {
    if (!this.#checks.has(name)) this.#checks.set(name, await compile(schema));
    const check = this.#checks.get(name);
    if (!check || check(data)) return [];
    return check.errors.map((e) => ({ path: "$" + e.instancePath.replaceAll("/", "."), expected: e.message, got: e.keyword }));
  }
}

async function compile(schema) {
  try {
    const { default: Ajv } = await import("ajv/dist/2020.js");
    return new Ajv({ allErrors: true, strict: false }).compile({ ...schema, $schema: undefined });
  } catch (error) {
    if (error.code === "ERR_MODULE_NOT_FOUND") return null;
    throw error;
  }
}

/** What others read of an error that is not for them to read. */
const internal = () => new AgentdError("internal", "internal error");

/** So many calls may be in hand at once. */
class Slots {
  #free;
  #waiting = new Set();

  constructor(free) {
    this.#free = free;
  }

  /** Waits until a slot is free, without taking it. */
  async some() {
    while (this.#free === 0) await new Promise((resolve) => this.#waiting.add(resolve));
  }

  /** Takes a slot, and reports whether one was free in time. */
  async take(milliseconds) {
    const late = AbortSignal.timeout(milliseconds);
    while (this.#free === 0 && !late.aborted) {
      await new Promise((resolve) => {
        this.#waiting.add(resolve);
        late.addEventListener("abort", resolve, { once: true });
      });
    }
    if (this.#free === 0) return false;
    this.#free--;
    return true;
  }

  release() {
    this.#free++;
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const resolve of waiting) resolve();
  }
}

/** A service while it runs. */
class Serving {
  active = new Map();
  /** The subscriptions to which calls are to come. */
  waiting = new Set();

  constructor(service, nc, signal) {
    Object.assign(this, { service, nc, signal, log: service.log, slots: new Slots(service.slots) });
  }

  async run() {
    const { service, nc } = this;
    setMaxListeners(0, this.signal); // every slot listens
    const tokens = `${wire.domainToken(service.domain)}.${wire.token(service.type)}`;
    const voids = service.hearVoids && nc.subscribe(`agentd.void.${tokens}.>`, { callback: (_, m) => m && this.#void(m.subject) });
    const changes = nc.status();
    const renewing = this.#renew(changes);
    const consumers = await this.#consumers(`svc_${tokens.replace(".", "_")}`);
    await Promise.all(consumers.flatMap((consumer) => Array.from({ length: service.slots }, () => this.#pull(consumer))));
    changes.stop();
    await renewing;
    if (voids) voids.unsubscribe();
  }

  /** Asks for calls again when the connection was lost: the server has forgotten who waits. */
  async #renew(changes) {
    for await (const { type } of changes) {
      if (type === "reconnect") for (const subscription of this.waiting) subscription.unsubscribe();
    }
  }

  #void(subject) {
    this.active.get(subject.split(".").at(-1))?.abort(new AgentdError("cancelled", "nobody waits for the call any more"));
  }

  /**
   * The consumers that have the service's calls, each as the server knows it: one on AGENTD_OUT, or one on each of the streams that calls are
   * divided into, which the first of these says.
   */
  async #consumers(name) {
    while (!this.signal.aborted) {
      try {
        for (const stream of ["AGENTD_OUT", "AGENTD_OUT_0"]) {
          const { error, config } = (await wire.request(this.nc, `$JS.API.CONSUMER.INFO.${stream}.${name}`, "")).json();
          if (MISSING.includes(error?.err_code)) continue;
          if (error) throw new Unavailable(error.description);
          const partitions = Number(config.metadata?.["agentd-partitions"] ?? 1);
          return partitions === 1 ? [`${stream}.${name}`] : Array.from({ length: partitions }, (_, i) => `AGENTD_OUT_${i}.${name}`);
        }
        this.log.error(`the consumer ${name} does not exist: run agentd provision, with a configuration that has the contract`);
      } catch (error) {
        if (error.code === "permission_denied") return [`AGENTD_OUT.${name}`]; // it may ask for calls, and for nothing else
        this.log.warn(`no calls come: ${error.message}`);
      }
      await sleep(1000, undefined, { signal: this.signal }).catch(() => {}); // it ends at once when the service does
    }
    return [];
  }

  /** Takes one call after the other. */
  async #pull(consumer) {
    for (;;) {
      await this.slots.some();
      if (this.signal.aborted) return;
      const message = await this.#next(consumer);
      if (!message) continue;
      if (!(await this.slots.take(PATIENCE))) {
        message.respond("-NAK"); // calls of other consumers have come before: somebody else may be free
        continue;
      }
      try {
        await this.#settle(message);
      } finally {
        this.slots.release();
      }
    }
  }

  async #next(consumer) {
    const inbox = createInbox(this.nc.options.inboxPrefix);
    const subscription = this.nc.subscribe(inbox, { max: 1, timeout: PULL + 5000 });
    const over = () => subscription.unsubscribe();
    this.waiting.add(subscription);
    this.signal.addEventListener("abort", over, { once: true });
    try {
      const ask = JSON.stringify({ batch: 1, expires: PULL * 1e6 });
      this.nc.publish(`$JS.API.CONSUMER.MSG.NEXT.${consumer}`, ask, { reply: inbox });
      for await (const m of subscription) {
        const status = m.headers?.code || (m.headers?.status ? Number.parseInt(m.headers.status, 10) : 0);
        if (!status) return m;
        if (status === 404 || status === 408) return null;
        this.log.error(status === 503
          ? `the consumer ${consumer} does not exist: run agentd provision, with a configuration that has the contract`
          : `the server answered a pull with ${status}`);
      }
      if (this.signal.aborted) return null;
    } catch (error) {
      if (this.signal.aborted) return null;
      this.log.warn(`no calls come: ${error.message}`);
    } finally {
      this.waiting.delete(subscription);
      this.signal.removeEventListener("abort", over);
      subscription.unsubscribe();
    }
    await sleep(1000, undefined, { signal: this.signal }).catch(() => {}); // it ends at once when the service does
    return null;
  }

  async #settle(message) {
    const [, kind, ...rest] = message.subject.split("."), id = rest.at(-1);
    if (kind === "void") {
      this.#void(message.subject);
      return message.respond("+ACK");
    }
    if (this.active.has(id)) return; // the delivery in hand settles this one too
    const voided = new AbortController();
    this.active.set(id, voided);
    const beating = setInterval(() => message.respond("+WPI"), HEARTBEAT);
    try {
      const answer = await this.#answer(message, voided.signal);
      if (answer && !voided.signal.aborted) await this.#respond(wire.replySubject(message.subject), answer);
      message.respond("+ACK");
    } catch (error) {
      this.log.warn(`call ${id} is left to another delivery: ${error.message}`);
    } finally {
      clearInterval(beating);
      this.active.delete(id);
    }
  }

  /** The answer to a delivery; null when it is not a call, which nobody can be told of. */
  async #answer(message, voided) {
    let event, found;
    try {
      event = wire.decode(message);
      found = wire.callOf(event.id);
      if (!found || event.id !== message.subject.split(".").at(-1)) {
        throw new AgentdError("invalid_event", "the event's id is not that of its subject");
      }
    } catch (error) {
      this.log.error(`a message on ${message.subject} is not a call and is passed over: ${error.message}`);
      return null;
    }
    const { id, subject, dataschema = "", accesscontrol, traceparent, tracestate } = event;
    const call = {
      key: found.call, id, data: event.data, version: (dataschema ?? "").split("/").at(-1), agent: event.agent ?? "", run: subject ?? "", event,
    };
    const answer = {
      specversion: "1.0", id: `${id}-answer`, source: this.service.type, subject, time: new Date().toISOString(),
      datacontenttype: "application/json", dataschema, parentid: id, accesscontrol, traceparent, tracestate,
    };
    try {
      return { ...answer, ...(await this.#within(call, voided)) };
    } catch (error) {
      let problem = error;
      if (!(error instanceof AgentdError)) {
        this.log.error(`the handler of call ${id} failed:`, error); // what went wrong inside is not for others to read
        problem = internal();
      }
      return this.#failure(answer, problem);
    }
  }

  /** The error in place of an answer. */
  #failure(answer, { data }) {
    const schema = answer.dataschema ?? "", base = this.service.contract.uri || schema.slice(0, schema.lastIndexOf("/"));
    return { ...answer, type: `sys.${this.service.type}.error`, dataschema: `${base}/0.0.0`, data };
  }

  /** Stores the answer, or the error that it cannot be sent: a handler that is called again would return the same. */
  async #respond(subject, answer) {
    try {
      await this.#store(subject, answer);
    } catch (error) {
      if (error.code !== "too_large" && error.code !== "invalid_event") throw error;
      this.log.error(`the answer to call ${answer.parentid} cannot be sent: ${error.message}`);
      const large = new AgentdError("too_large", "the answer is larger than the broker takes");
      await this.#store(subject, this.#failure(answer, error.code === "too_large" ? large : internal()));
    }
  }

  /** What the service answers, unless the call is due or voided before. */
  async #within(call, voided) {
    const left = Date.parse(call.event.expirytime ?? "") - Date.now();
    const late = new AgentdError("deadline_exceeded", "the service took too long", { retryable: true });
    if (left <= 0) throw late;
    const due = new AbortController();
    const timer = Number.isFinite(left) ? setTimeout(() => due.abort(late), Math.min(left, 2 ** 31 - 1)) : undefined;
    const signal = AbortSignal.any([voided, due.signal]);
    const given = new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));
    try {
      return await Promise.race([this.service.answer(call, signal), given]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Stores the answer, once. */
  async #store(subject, event) {
    const headers = newHeaders();
    headers.set("Content-Type", wire.structured["Content-Type"]);
    headers.set("Nats-Expected-Last-Subject-Sequence", "0");
    const body = wire.encode(event);
    for (const pause of [50, 200, 1000, 3000, 0]) {
      let stored;
      try {
        stored = (await wire.request(this.nc, subject, body, { headers })).json();
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error;
        this.log.warn(`the answer to call ${event.parentid} is not stored yet: ${error.message}`);
        await sleep(pause);
        continue;
      }
      if (!stored.error || stored.error.err_code === WRONG_LAST_SEQUENCE) return; // or it was stored by an earlier delivery
      throw new Error(`the answer is refused: ${stored.error.description}`);
    }
    throw new Unavailable("the broker does not store the answer");
  }
}

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
// How long a pull takes where no calls came, so that it is soon known that they come again.
const SHORT_PULL = 1000;
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

/** Why no calls of a consumer come: said once, and again when the reason is another one, or when they come again. */
class Trouble {
  reason = "";

  constructor(consumer, log) {
    Object.assign(this, { consumer, log });
  }

  missing() {
    this.#say("error", `the consumer ${this.consumer} does not exist: run agentd provision, with a configuration that has the contract`);
  }

  failed(error) {
    this.#say("warn", `no calls of the consumer ${this.consumer} come: ${error.message || error.name}`);
  }

  refused(status) {
    this.#say("warn", `the server answered a pull of the consumer ${this.consumer} with ${status}`);
  }

  over() {
    if (this.reason) this.log.info(`calls of the consumer ${this.consumer} come again`);
    this.reason = "";
  }

  #say(level, reason) {
    if (reason !== this.reason) this.log[level](reason);
    this.reason = reason;
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
    this.log.info(`connected to NATS at ${nc.getServer()}`);
    const consumers = await this.#consumers(`svc_${tokens.replace(".", "_")}`);
    if (consumers.length > 0) this.log.info(`serving ${service.type}`);
    await Promise.all(consumers.flatMap((consumer) => {
      const trouble = new Trouble(consumer, this.log);
      return Array.from({ length: service.slots }, () => this.#pull(consumer, trouble));
    }));
    changes.stop();
    await renewing;
    if (voids) voids.unsubscribe();
  }

  /** Asks for calls again when the connection was lost: the server has forgotten who waits. */
  async #renew(changes) {
    for await (const { type, server } of changes) {
      if (type === "disconnect") this.log.warn("the connection to NATS is lost");
      if (type !== "reconnect") continue;
      this.log.info(`connected to NATS at ${server}`);
      for (const subscription of this.waiting) subscription.unsubscribe();
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
    const trouble = new Trouble(name, this.log);
    while (!this.signal.aborted) {
      try {
        for (const stream of ["AGENTD_OUT", "AGENTD_OUT_0"]) {
          const config = await this.#config(`${stream}.${name}`);
          if (!config) continue;
          const partitions = Number(config.metadata?.["agentd-partitions"] ?? 1);
          return partitions === 1 ? [`${stream}.${name}`] : Array.from({ length: partitions }, (_, i) => `AGENTD_OUT_${i}.${name}`);
        }
        trouble.missing();
      } catch (error) {
        if (error.code === "permission_denied") return [`AGENTD_OUT.${name}`]; // it may ask for calls, and for nothing else
        trouble.failed(error);
      }
      await sleep(1000, undefined, { signal: this.signal }).catch(() => {}); // it ends at once when the service does
    }
    return [];
  }

  /** Takes one call after the other. */
  async #pull(consumer, trouble) {
    for (;;) {
      await this.slots.some();
      if (this.signal.aborted) return;
      const message = await this.#next(consumer, trouble);
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

  async #next(consumer, trouble) {
    try {
      if (trouble.reason && !(await this.#exists(consumer))) {
        trouble.missing();
      } else {
        const message = await this.#ask(consumer, trouble.reason ? SHORT_PULL : PULL);
        const status = message?.headers?.code || (message?.headers?.status ? Number.parseInt(message.headers.status, 10) : 0);
        if (message && [0, 404, 408].includes(status)) {
          trouble.over();
          return status ? null : message;
        }
        if (message) trouble.refused(status);
      }
    } catch (error) {
      if (!this.signal.aborted) trouble.failed(error);
    }
    await sleep(1000, undefined, { signal: this.signal }).catch(() => {}); // it ends at once when the service does
    return null;
  }

  /**
   * What the server answers to a pull: a call, or a message of its own that says why there is none. Undefined when the service ends, or
   * the server that was asked is another now.
   */
  async #ask(consumer, expires) {
    const inbox = createInbox(this.nc.options.inboxPrefix);
    const subscription = this.nc.subscribe(inbox, { max: 1, timeout: expires + 5000 });
    const over = () => subscription.unsubscribe();
    this.waiting.add(subscription);
    this.signal.addEventListener("abort", over, { once: true });
    try {
      this.nc.publish(`$JS.API.CONSUMER.MSG.NEXT.${consumer}`, JSON.stringify({ batch: 1, expires: expires * 1e6 }), { reply: inbox });
      for await (const message of subscription) return message;
    } finally {
      this.waiting.delete(subscription);
      this.signal.removeEventListener("abort", over);
      subscription.unsubscribe();
    }
  }

  async #exists(consumer) {
    try {
      return (await this.#config(consumer)) !== null;
    } catch (error) {
      if (error.code === "permission_denied") return true; // as far as it may know
      throw error;
    }
  }

  /** The configuration of a consumer; null is of one that does not exist. */
  async #config(consumer) {
    const { error, config } = (await wire.request(this.nc, `$JS.API.CONSUMER.INFO.${consumer}`, "")).json();
    if (MISSING.includes(error?.err_code)) return null;
    if (error) throw new Unavailable(error.description);
    return config;
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

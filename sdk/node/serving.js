// A service while it runs: its deliveries, and the answers to them.
import { setMaxListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

import { createInbox, headers as newHeaders } from "@nats-io/transport-node";

import { WILDCARD } from "./contract.js";
import { AgentdError, CallError, ToolError, Unavailable } from "./errors.js";
import { deadLetter } from "./letters.js";
import * as wire from "./wire.js";

// A delivery lasts 14.3 s unless it is extended.
const HEARTBEAT = 5000, PULL = 30_000;
// How long an answer that is not stored yet waits at first, and as often it is tried when the service is to end.
const PAUSES = [50, 200, 1000, 3000];
// How long a pull takes where no calls came, so that it is soon known that they come again.
const SHORT_PULL = 1000;
// How long a call may wait here for a slot before others are given it.
const PATIENCE = 1000;
// The server says with these codes that it has no such stream, or no such consumer.
const MISSING = [10059, 10014];
// How many voided calls are known, so that one that comes later is not begun.
const REMEMBERED = 4096;

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

/** The last calls that were voided. */
class Voided {
  #ids = new Set();

  add(id) {
    this.#ids.add(id);
    if (this.#ids.size > REMEMBERED) this.#ids.delete(this.#ids.values().next().value);
  }

  has(id) {
    return this.#ids.has(id);
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

/** The event of a delivery, whose subject must say the same: who may do what is decided by subjects. Throws AgentdError: invalid_event. */
function callIn(message) {
  const event = wire.decode(message), tokens = message.subject.split(".");
  wire.replySubject(message.subject);
  if (!wire.callOf(event.id) || event.id !== tokens.at(-1)) throw new AgentdError("invalid_event", "the event's id is not that of its subject");
  if (wire.runKey(event.subject ?? "") !== tokens.slice(-3, -1).join(".")) {
    throw new AgentdError("invalid_event", "the event's run is not that of its subject");
  }
  return event;
}

/** A service while it runs. */
export class Serving {
  active = new Map();
  voided = new Voided();
  /** The subscriptions to which calls are to come. */
  waiting = new Set();

  constructor(service, nc, ended) {
    const ending = new AbortController();
    Object.assign(this, {
      service, nc, ended, ending, signal: ending.signal, log: service.log, slots: new Slots(service.slots), out: wire.stream(service.root, "OUT"),
      tokens: `${wire.domainToken(service.domain)}.${wire.token(service.type)}`,
    });
  }

  /** Serves until the signal is aborted. Throws Unavailable when the connection is closed before. */
  async run() {
    setMaxListeners(0, this.signal); // every slot listens
    const end = () => this.ending.abort();
    this.ended.addEventListener("abort", end, { once: true });
    this.nc.closed().then(end);
    if (this.ended.aborted) end();
    const changes = this.nc.status();
    const renewing = this.#renew(changes);
    this.log.info(`connected to NATS at ${this.nc.getServer()}`);
    const { service, tokens } = this;
    const voids = service.hearVoids && this.#hearVoids(`${service.root}.void.${tokens}.>`);
    await this.#take(await this.#consumers(`svc_${tokens.replace(".", "_")}`));
    this.ended.removeEventListener("abort", end);
    if (voids) voids.unsubscribe();
    changes.stop();
    await renewing;
    if (!this.ended.aborted) throw wire.closed();
  }

  /** Takes calls of the consumers, as many at once as there are slots. */
  async #take(consumers) {
    const { type, slots } = this.service;
    if (consumers.length > 0) this.log.info(`serving ${type}`);
    await Promise.all(consumers.flatMap((consumer) => {
      const trouble = new Trouble(consumer, this.log);
      return Array.from({ length: slots }, () => this.#pull(consumer, trouble));
    }));
  }

  #hearVoids(subject) {
    const voids = wire.subscribe(this.nc, subject, (m) => {
      // Whoever may make a consumer may have other messages delivered here: they keep the subject that they came on.
      if (m.subject.split(".")[1] === "void") this.#void(m.subject);
    });
    wire.ended(voids).then((why) => why.code === "permission_denied" && this.log.warn(`voided calls may be noticed late: ${why.detail}`));
    return voids;
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
    const id = subject.split(".").at(-1);
    this.voided.add(id);
    this.active.get(id)?.abort(new AgentdError("cancelled", "nobody waits for the call any more"));
  }

  /**
   * The consumers that have the service's calls, each as the server knows it: one on the stream of calls, or one on each of the streams that
   * these are divided into, which the first of them says.
   */
  async #consumers(name) {
    const trouble = new Trouble(name, this.log);
    while (!this.signal.aborted) {
      try {
        for (const stream of [this.out, `${this.out}_0`]) {
          const config = await this.#config(`${stream}.${name}`);
          if (!config) continue;
          const partitions = Number(config.metadata?.["agentd-partitions"] ?? 1);
          return partitions === 1 ? [`${stream}.${name}`] : Array.from({ length: partitions }, (_, i) => `${this.out}_${i}.${name}`);
        }
        trouble.missing();
      } catch (error) {
        if (error.code === "permission_denied") return [`${this.out}.${name}`]; // it may ask for calls, and for nothing else
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
    const subscription = this.nc.subscribe(inbox, { timeout: expires + 5000 });
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
    if (this.voided.has(id)) return message.respond("+ACK");
    const voided = new AbortController();
    this.active.set(id, voided);
    const beating = setInterval(() => message.respond("+WPI"), HEARTBEAT);
    try {
      const event = await this.#called(message), answer = event && (await this.#answer(event, voided.signal));
      if (answer) await this.#respond(wire.replySubject(message.subject), answer, voided.signal);
      message.respond("+ACK");
    } catch (error) {
      this.log.warn(`call ${id} is left to another delivery: ${error.message}`);
    } finally {
      clearInterval(beating);
      this.active.delete(id);
    }
  }

  /** The event of a call that was delivered; null where it is none, of which a dead letter tells, or the log where the user may not store that. */
  async #called(message) {
    let problem;
    try {
      return callIn(message);
    } catch (error) {
      problem = error;
    }
    this.log.error(`a message on ${message.subject} is not a call: ${problem.message}`);
    try {
      await deadLetter(this.nc, this.service.root, this.tokens, message, problem);
    } catch (error) {
      if (error.code !== "permission_denied") throw error;
      this.log.warn(`it is passed over, as this user may not store dead letters: ${error.detail}`);
    }
    return null;
  }

  /** The answer to a call; null when nobody waits for it. */
  async #answer(event, voided) {
    const { id, subject, source, redirectto, accesscontrol, traceparent, tracestate } = event;
    const call = { key: wire.callOf(id).call, id, data: event.data, agent: event.agent ?? "", run: subject ?? "", event };
    const answer = {
      specversion: "1.0", id: `${id}-answer`, source: this.service.type, subject, time: new Date().toISOString(), to: redirectto || source,
      datacontenttype: "application/json", parentid: id, accesscontrol, traceparent, tracestate, executionunits: this.service.units,
    };
    try {
      return { ...answer, ...(await this.#within(call, voided)) };
    } catch (error) {
      if (voided.aborted) return null;
      if (error instanceof ToolError || error instanceof CallError) return this.#failure(answer, error);
      this.log.error(`the handler of call ${id} failed:`, error); // what went wrong inside is not for others to read
      return this.#failure(answer, internal());
    }
  }

  /** The error in place of an answer. */
  #failure(answer, { data }) {
    const { uri, type } = this.service.contract;
    return { ...answer, type: `sys.${type}.error`, dataschema: `${uri}/${WILDCARD}`, data };
  }

  /** Stores the answer, or the error that it cannot be sent: a handler that is called again would return the same. */
  async #respond(subject, answer, voided) {
    try {
      await this.#store(subject, answer, voided);
    } catch (error) {
      if (error.code !== "too_large" && error.code !== "invalid_event") throw error;
      this.log.error(`the answer to call ${answer.parentid} cannot be sent: ${error.message}`);
      const large = new AgentdError("too_large", "the answer is larger than the broker takes");
      await this.#store(subject, this.#failure(answer, error.code === "too_large" ? large : internal()), voided);
    }
  }

  /** What the service answers, unless the call is due or voided before. */
  async #within(call, voided) {
    voided.throwIfAborted(); // a signal does not tell of what was before
    const left = wire.instant(call.event.expirytime) - Date.now();
    const late = new CallError("deadline_exceeded", "the service took too long", { retryable: true });
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

  /**
   * Stores the answer, once. While the server is away, or its stream is full, the call stays in hand, as long as somebody waits for it: its
   * handler is not to do again what it did.
   */
  async #store(subject, event, voided) {
    const headers = newHeaders();
    headers.set("Content-Type", wire.structured["Content-Type"]);
    headers.set("Nats-Expected-Last-Subject-Sequence", "0");
    const body = wire.encode(event);
    for (let tried = 0; tried < PAUSES.length || !this.signal.aborted; tried++) {
      if (voided.aborted) return;
      let why;
      try {
        const { error } = (await wire.request(this.nc, subject, body, { headers })).json();
        if (!error || error.err_code === wire.WRONG_LAST_SEQUENCE) return; // or it was stored by an earlier delivery
        why = error.description;
        if (!wire.isFull(error)) throw new Error(`the answer is refused: ${why}`);
      } catch (error) {
        if (!(error instanceof Unavailable) || !error.retryable) throw error;
        why = error.message;
      }
      this.log.warn(`the answer to call ${event.parentid} is not stored yet: ${why}`);
      await sleep(PAUSES[tried] ?? HEARTBEAT, undefined, { signal: voided }).catch(() => {});
    }
    throw new Unavailable("the broker does not store the answer");
  }
}

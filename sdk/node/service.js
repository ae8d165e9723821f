// Serve a contract: answer the calls that agents make.
import { readFileSync } from "node:fs";

import { connect } from "./connect.js";
import { Checks, contractFaults, versionCalled } from "./contract.js";
import { AgentdError, CallError, listed } from "./errors.js";
import { Serving } from "./serving.js";
import * as wire from "./wire.js";

// What costs more has no number of millionths in 64 bits.
const MAX_UNITS = 9_223_372_036_854;

/**
 * Answers the calls of a contract: its JSON as in docs/wire.md, or the path of a file with it. With the package ajv, calls and
 * answers are checked against it here as well; agentd checks both anyway.
 */
export class Service {
  #handlers = new Map();
  // Handlers that were set where there was one already.
  #others = new Set();
  #checks;

  constructor(contract, { slots = 16, hearVoids = true, units = 0, root = "", log = console } = {}) {
    this.contract = typeof contract === "string" ? JSON.parse(readFileSync(contract, "utf8")) : contract;
    Object.assign(this, { type: this.contract.type, domain: this.contract.domain ?? "", slots, hearVoids, units, root: wire.root(root), log });
  }

  /** Sets the handler of a version, or of every version that has none of its own: (call, data, signal) => the answer's data. */
  handle(version, handler) {
    if (typeof version === "function") [version, handler] = ["", version];
    if (version && !this.contract.versions[version]) {
      throw new TypeError(`${this.type} has no version ${version}: it has ${Object.keys(this.contract.versions).join(", ")}`);
    }
    if (this.#handlers.has(version)) this.#others.add(version);
    this.#handlers.set(version, handler);
    this.#checks = undefined;
    return this;
  }

  /** Serves until SIGTERM or SIGINT, and then until the calls in hand are answered. options are those of connect. */
  async run(options = {}) {
    await this.#ready();
    const ending = new AbortController();
    for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => ending.abort());
    const nc = await connect({ name: this.type, root: this.root, ...options });
    try {
      await this.serve(nc, ending.signal);
    } finally {
      await nc.close();
    }
  }

  /**
   * Serves on a connection until the signal is aborted, and then until the calls in hand are answered. Throws AgentdError: config, for what
   * cannot be served as it is, and unavailable, when the connection is closed.
   */
  async serve(nc, signal) {
    await this.#ready();
    return new Serving(this, nc, signal).run();
  }

  /** The type, dataschema, data and cost of the answer to a call, whose version it sets. */
  async answer(call, signal) {
    const { uri, versions } = this.contract, version = versionCalled(this.contract, call.event), checks = await this.#ready();
    call.version = version;
    const faults = checks.accepts(version, call.data);
    if (faults.length > 0) throw new CallError("contract_violation", `the data does not fit ${uri}/${version}`, { faults });
    signal.throwIfAborted(); // it may have been voided while the checks were made
    const { $type, $units, ...data } = answered(await this.#handler(version)(call, call.data, signal));
    const types = Object.keys(versions[version].emits), type = $type ?? (types.length === 1 ? types[0] : undefined);
    if (!types.includes(type)) throw new TypeError(`the answer's $type is ${type}; want ${types.join(" or ")}`);
    if (!isCost($units ?? 0)) throw new TypeError(`the answer's $units are ${$units}; want a number of 0 or more`);
    const own = checks.emits(version, type, data);
    if (own.length > 0) throw new TypeError(`the answer does not fit ${type}: ${JSON.stringify(own)}`);
    return { type, dataschema: `${uri}/${version}`, data, executionunits: $units || this.units };
  }

  #handler(version) {
    return this.#handlers.get(version) ?? this.#handlers.get("");
  }

  /** The checks of the contract's schemas. Throws AgentdError: config, with all that keeps the service from being served. */
  #ready() {
    this.#checks ??= this.#prepare();
    return this.#checks;
  }

  async #prepare() {
    const faults = [...contractFaults(this.contract), ...this.#misuse()];
    const checks = faults.length > 0 ? undefined : await Checks.of(this.contract);
    faults.push(...(checks?.faults ?? []));
    if (faults.length > 0) throw new AgentdError("config", `the service cannot be run: ${listed(faults)}`, { faults });
    for (const [why, schemas] of checks.unchecked) this.log.warn(`not checked here, but by agentd: ${schemas.join(", ")}: ${why}`);
    return checks;
  }

  #misuse() {
    const versions = Object.keys(this.contract.versions ?? {}), path = (version) => `${this.type} ${version}`;
    const unserved = versions.filter((version) => typeof this.#handler(version) !== "function");
    const contested = versions.filter((version) => this.#others.has(this.#handlers.has(version) ? version : ""));
    const faults = [
      ...unserved.map((version) => ({ path: path(version), expected: "a handler", got: "none" })),
      ...contested.map((version) => ({ path: path(version), expected: "one handler", got: "another" })),
    ];
    if (!isCost(this.units)) faults.push({ path: "units", expected: "a number of 0 or more", got: String(this.units) });
    if (!Number.isInteger(this.slots) || this.slots < 1) faults.push({ path: "slots", expected: "at least 1", got: String(this.slots) });
    return faults;
  }
}

/** Whether a number is a cost that events can have. */
const isCost = (units) => typeof units === "number" && units >= 0 && units < MAX_UNITS;

/** What a handler returned, as its JSON has it. */
function answered(value) {
  try {
    return wire.object(value);
  } catch (cause) {
    throw new TypeError(`the handler's answer cannot be sent: ${cause.message}. Return an object, such as {text: "sunny"}`, { cause });
  }
}

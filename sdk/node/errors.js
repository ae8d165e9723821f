// What goes wrong, by the codes of docs/wire.md#errors.

/** An error with a code. retryable says that the same request may succeed later. */
export class AgentdError extends Error {
  constructor(code, message, { retryable = false, faults = [], cause } = {}) {
    super(`${code}: ${message}`, { cause });
    this.name = new.target.name;
    Object.assign(this, { code, detail: message, retryable, faults });
  }

  /** The error that the data of a sys.<type>.error event describes. Services of others may leave out the code. */
  static of(data) {
    return new AgentdError(String(data.code || data.errorName || "internal"), String(data.errorMessage || ""), {
      retryable: data.retryable === true, faults: data.faults ?? [],
    });
  }

  /** The data of a sys.<type>.error event. */
  get data() {
    const { code, detail, retryable, faults } = this;
    const data = { errorName: code, errorMessage: detail, errorStack: null, code, retryable };
    return faults.length > 0 ? { ...data, faults } : data;
  }
}

/** Faults as a person reads them. */
export const listed = (faults) => faults.map(({ path, expected, got }) => `${path}: expected ${expected}, got ${got}`).join("; ");

/** Thrown by a handler: the call failed, and the model may read why. Of other errors it only learns that there was one. */
export class ToolError extends AgentdError {
  constructor(message, { code = "tool_failed", ...options } = {}) {
    super(code, message, options);
  }
}

/** Nobody answers: the server cannot be reached, a stream or consumer does not exist, or no worker serves the agent. */
export class Unavailable extends AgentdError {
  constructor(message, options) {
    super("unavailable", message, { retryable: true, ...options });
  }
}

/** A run ended with an error. reason says why it ended, as reason:code. */
export class RunFailed extends AgentdError {
  constructor(run, error, reason) {
    super(error.code, `run ${run} ended: ${error.detail}`, error);
    Object.assign(this, { run, reason });
  }
}

/** What a service itself has to say of a call, as that it does not fit the contract: whoever called may read it. */
export class CallError extends AgentdError {}

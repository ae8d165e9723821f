import type { ConnectionOptions, NatsConnection } from "@nats-io/transport-node";

export type Json = { [name: string]: unknown };

export interface Fault {
  path: string;
  expected: string;
  got: string;
}

/** An error with a code of docs/wire.md#errors. detail is its text without the code. */
export class AgentdError extends Error {
  constructor(code: string, message: string, options?: { retryable?: boolean; faults?: Fault[]; cause?: unknown });
  readonly code: string;
  readonly detail: string;
  readonly retryable: boolean;
  readonly faults: Fault[];
}

/** Thrown by a handler: the call failed, and the model may read why. */
export class ToolError extends AgentdError {
  constructor(message: string, options?: { code?: string; retryable?: boolean; faults?: Fault[] });
}

/**
 * Nobody answers: the server cannot be reached, a stream or consumer does not exist, or no worker serves the agent. It is
 * retryable, unless the connection is closed.
 */
export class Unavailable extends AgentdError {
  constructor(message: string, options?: { retryable?: boolean; cause?: unknown });
}

/** A run ended with an error. reason says why it ended, as reason:code. */
export class RunFailed extends AgentdError {
  readonly run: string;
  readonly reason: string;
}

/**
 * Connects to NATS: by default to NATS_URL, as NATS_USER with NATS_PASSWORD or else with the login in the URL. It reconnects for ever, and
 * by TLS alone where a URL begins with tls://. The inbox prefix is that of the root, by default AGENTD_ROOT or agentd. Throws AgentdError: config for a root or a login that is none.
 */
export function connect(options?: ConnectionOptions & { root?: string }): Promise<NatsConnection>;

export interface Contract {
  uri: string;
  type: string;
  domain?: string;
  description?: string;
  versions: { [version: string]: { accepts: Json; emits: { [type: string]: Json } } };
}

/** A call of an agent. key is the same whenever the call comes again: give each key one effect. */
export interface Call<Data = Json> {
  key: string;
  id: string;
  data: Data;
  version: string;
  agent: string;
  run: string;
  event: Json;
}

/**
 * An object that JSON has all of, after its toJSON. $type is the answer's type, which a version that emits several wants; $units is what it cost,
 * up to six decimal places, 0 being what the service's answers cost.
 */
export type Answer = (Json & { $type?: string; $units?: number }) | { toJSON(): unknown };

/** signal is aborted when the call is due or voided. Of what is thrown, the caller reads a ToolError; of anything else, that there was an error. */
export type Handler<Data = Json> = (call: Call<Data>, data: Data, signal: AbortSignal) => Answer | Promise<Answer>;

export interface ServiceOptions {
  /** How many calls are handled at once; 16. */
  slots?: number;
  /** Hear of voided calls at once, which needs the right to subscribe to <root>.void.<domain>.<type>.>; true. */
  hearVoids?: boolean;
  /** What an answer costs, errors included; 0. */
  units?: number;
  /** The first token of every subject; AGENTD_ROOT, else agentd. */
  root?: string;
  log?: Pick<Console, "info" | "warn" | "error">;
}

export class Service {
  /** contract is a contract, or the path of a JSON file with one. */
  constructor(contract: Contract | string, options?: ServiceOptions);
  handle<Data = Json>(handler: Handler<Data>): this;
  handle<Data = Json>(version: string, handler: Handler<Data>): this;
  /**
   * Serves until SIGTERM or SIGINT, and then until the calls in hand are answered. Throws AgentdError: config, with all that keeps it from
   * being served, such as a version without a handler or with two; unavailable, when the connection is closed.
   */
  run(options?: ConnectionOptions): Promise<void>;
  serve(nc: NatsConnection, signal: AbortSignal): Promise<void>;
}

export interface Run {
  agent: string;
  name: string;
  /** Tells the outcome of one's own request from another's with the same name; without it, of whoever started the run. */
  init?: string;
}

export interface Mark {
  rev: number;
  i: number;
}

/** Something that happened in a run. Its mark orders milestones; ephemeral events may be lost. */
export interface Live extends Mark {
  type: string;
  data: Json;
  ephemeral: boolean;
  event: Json;
}

export interface Result {
  type: string;
  data: Json;
  reason: string;
}

export interface Start {
  key?: string;
  name?: string;
  type?: string;
  require?: string[];
  /** The most tokens that the run may use, if the agent's own limit is not lower; 0, any number. */
  tokens?: number;
  /** What bounds the run's calls beside its agent's constraints: docs/lifecycle.md#constraints. */
  constraints?: Json;
  /** What people find the run by: at most 16, keys of [a-z0-9_.-]{1,32}, values of at most 128 bytes without commas. */
  tags?: { [key: string]: string };
  accessControl?: string;
  traceparent?: string;
  tracestate?: string;
}

export interface Asked {
  call: string;
  type: string;
  domain?: string;
  event: string;
  schema?: string;
  asked: Json;
}

/** A decision beside allow or deny, as docs/permissions.md#the-decision has it. request names one of several requests. */
export interface Terms {
  request?: string;
  args_sha256?: string;
  calls?: { call: string; args_sha256?: string; decision?: Decision; args?: Json; result?: Json; reason?: string }[];
  all?: boolean;
  scope?: string;
  pattern?: string;
  args?: Json;
  result?: Json;
  reason?: string;
  uses?: number;
  expires?: number;
}

/**
 * What a run made of an answer or a decision: counted; refused, which refused says why; or sent, of which no more is known than that it is stored:
 * no worker has come to it yet, it came too late, or it became a dead letter. open says that the call still waits: for a decision that counts, for
 * further approvers where allowed of a quorum have allowed it, or for decisions on the rest, the calls of the same request. A call that is queued
 * is allowed and waits for its turn in the round, of which so many requests are undecided.
 */
export interface Outcome {
  state: "counted" | "refused" | "sent";
  refused: string;
  open: boolean;
  allowed: number;
  quorum: number;
  rest: number;
  queued: boolean;
  undecided: number;
}

export type Decision = "allow" | "deny" | "ask" | "result";

/** Its methods throw AgentdError, at once for what no run could use: invalid_event, contract_violation, message_refused, decision_refused. */
export class Client {
  /** root is the first token of every subject; AGENTD_ROOT, else agentd. */
  constructor(nc: NatsConnection, options?: { who?: string; source?: string; root?: string });
  start(agent: string, data: Json, options?: Start): Promise<Required<Run>>;
  status(run: Run): Promise<Json>;
  list(agent: string, status?: "" | "running" | "waiting" | "done"): AsyncGenerator<Json>;
  /** Throws the signal's reason, and unavailable when the connection is closed. return() ends it also while the next event is waited for. */
  follow(run: Run, after?: Mark, options?: { signal?: AbortSignal }): AsyncGenerator<Live, void>;
  /** Throws RunFailed, the signal's reason, and unavailable when the connection is closed. */
  wait(run: Run, options?: { signal?: AbortSignal }): Promise<Result>;
  /** The text has 1 to 65536 bytes. */
  send(run: Run, text: string): Promise<void>;
  cancel(run: Run, reason?: string): Promise<void>;
  asked(run: Run): Promise<Asked[]>;
  /** The id of the answer, which is stored; outcome tells whether the run takes it. data is in place of a text. */
  answer(run: Run, text: string | undefined, options?: { call?: string; end?: boolean; data?: Json }): Promise<string>;
  /** The id of the decision, which is stored; outcome tells whether it counts. */
  decide(run: Run, decision: Decision, terms?: Terms): Promise<string>;
  /** What a run made of the answer or decision with an id. timeout, 10,000 milliseconds by default, is how long it is waited for. */
  outcome(run: Run, id: string, options?: { timeout?: number }): Promise<Outcome>;
}

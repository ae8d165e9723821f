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

/** Nobody answers: the server cannot be reached, a stream or consumer does not exist, or no worker serves the agent. */
export class Unavailable extends AgentdError {
  constructor(message: string, options?: { cause?: unknown });
}

/** A run ended with an error. reason says why it ended, as reason:code. */
export class RunFailed extends AgentdError {
  readonly run: string;
  readonly reason: string;
}

/** Connects to NATS: by default to NATS_URL, as NATS_USER with NATS_PASSWORD. It reconnects for ever. */
export function connect(options?: ConnectionOptions): Promise<NatsConnection>;

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

/** signal is aborted when the call is due or voided. The answer's type is the contract's first, or $type. */
export type Handler<Data = Json> = (call: Call<Data>, data: Data, signal: AbortSignal) => Promise<Json & { $type?: string }>;

export interface ServiceOptions {
  /** How many calls are handled at once; 16. */
  slots?: number;
  /** Hear of voided calls at once, which needs the right to subscribe to agentd.void.<domain>.<type>.>; true. */
  hearVoids?: boolean;
  log?: Pick<Console, "info" | "warn" | "error">;
}

export class Service {
  /** contract is a contract, or the path of a JSON file with one. */
  constructor(contract: Contract | string, options?: ServiceOptions);
  handle<Data = Json>(handler: Handler<Data>): this;
  handle<Data = Json>(version: string, handler: Handler<Data>): this;
  /** Serves until SIGTERM or SIGINT, and then until the calls in hand are answered. */
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
  tokens?: number;
  accessControl?: string;
  traceparent?: string;
}

export interface Asked {
  call: string;
  type: string;
  domain?: string;
  event: string;
  schema?: string;
  asked: Json;
}

export class Client {
  constructor(nc: NatsConnection, options?: { who?: string; source?: string; root?: string });
  start(agent: string, data: Json, options?: Start): Promise<Required<Run>>;
  status(run: Run): Promise<Json>;
  list(agent: string, status?: "" | "running" | "waiting" | "done"): AsyncGenerator<Json>;
  follow(run: Run, after?: Mark): AsyncGenerator<Live>;
  wait(run: Run, options?: { signal?: AbortSignal }): Promise<Result>;
  send(run: Run, text: string): Promise<void>;
  cancel(run: Run, reason?: string): Promise<void>;
  asked(run: Run): Promise<Asked[]>;
  answer(run: Run, text: string, options?: { call?: string; end?: boolean; data?: Json }): Promise<string>;
  decide(run: Run, decision: "allow" | "deny" | "ask" | "result", terms?: Json & { request?: string }): Promise<string>;
}

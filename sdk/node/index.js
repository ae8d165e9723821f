export { connect } from "./connect.js";
export { Client } from "./client.js";
export { AgentdError, RunFailed, ToolError, Unavailable } from "./errors.js";
export { Service } from "./service.js";

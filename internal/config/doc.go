// Package config reads agentd.yaml: settings of the worker, and agents with their contracts and prompts, fully resolved.
// What the file may say is in agentd.schema.json, which the house's own schema engine checks and editors use; what a schema
// cannot say, such as that a tool exists, is checked here. Everything that can be known without a connection is checked,
// and all faults of all files are reported together, each with file, line and column.
//
// Precedence is flag, environment, file, default: Load gives file over default, ApplyEnv puts the environment over that,
// Set puts a flag over that, by the same schema. Check then looks at the result as a whole.
package config

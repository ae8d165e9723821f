// Package config reads agentd.yaml: settings of the worker, and agents with their contracts and prompts, fully resolved.
// Everything that can be known without a connection is checked, and all faults of all files are reported together, each
// with file, line and column.
//
// Precedence is flag, environment, file, default: Load gives file over default, ApplyEnv puts the environment over that,
// and the command line writes its flags into the fields. Check then looks at the result as a whole.
package config

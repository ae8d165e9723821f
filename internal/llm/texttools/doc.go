// Package texttools lets models without native tool calls make them in their text:
//
//	I look for flights first.
//	<tool>{"server_name": "local", "tool_name": "find_flight", "arguments": {"to": "LIS"}}</tool>
//
// The body may be XML instead (<server_name>, <tool_name>, and <arguments> with an element for each argument). Other models
// write lines ("Tool: find_flight", "Arguments: {…}"), or lists of calls ([find_flight(to="LIS")]). Wrap makes a provider of
// such models look like any other.
package texttools

// Package mockllm is a model that answers from a script over HTTP, in two protocols: POST /v1/chat/completions (OpenAI,
// streamed and not) and POST /v1/messages (Anthropic, streamed); and GET /v1/models, GET /stats and GET /readyz. Real client code runs
// against it in tests and demos, without a key.
//
// docs/cli.md (agentd mock-llm) shows a script with every member.
//
// The first conversation that matches answers. Which reply is due is counted from the request: as many replies are past
// as it has assistant messages. So the server remembers nothing of a conversation, any number of runs can use one
// script at once, and a request that is repeated after a crash gets the same answer. (Only faults are counted, by the
// run's header, or without one by the first user message.)
//
// With expect, the whole conversation in the protocol's form, the server is strict: a request must equal the expected
// messages so far, and is otherwise refused with status 422 and a message that says where and how it differs. Compared
// are roles, texts, calls (arguments as JSON), results (as JSON where they are) and that each result has the id of its
// call; ids themselves are the client's, and those that this server made up are refused, because agentd must not keep a
// vendor's ids. Without replies, the assistant messages of expect are the replies. Among several matching strict
// conversations those that agree with the request count, and they must agree on the answer.
//
// The models of an agent that plans (docs/planning.md) are told apart by model: the planner is asked with the conversation, so that contains
// is about the request; the router for each step anew, so that contains is "Step: Find a hat"; the synthesizer with "last: The plan is carried
// out". A planner that is asked for another plan is matched by "system: An earlier plan".
//
// GET /stats returns Stats.
package mockllm

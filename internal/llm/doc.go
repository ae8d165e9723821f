// Package llm calls language models. A Registry turns the model of an agent's spec into a sdk.Provider that retries,
// falls back and prices; nothing above it retries a model call, and no vendor's client retries below it.
package llm

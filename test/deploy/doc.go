// Package deploy tests what is in /deploy: the Helm chart as it renders, and the composed system on a local Docker engine.
// It is a module of its own, because Helm, the Kubernetes API types and Docker's client are many times larger than agentd.
package deploy

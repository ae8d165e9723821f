// Package asyncapi describes what travels between agentd and others as an AsyncAPI 3.0 document: channels are the NATS
// subjects of docs/wire.md, messages the CloudEvents on them with the data of the contracts.
//
// A document has the point of view of one party: agentd's workers, the clients that start runs, or the services that
// answer calls. "send" and "receive" are meant as that party's, and the client's and the service's documents hold only
// the operations that they take part in. Ids are the same in all.
package asyncapi

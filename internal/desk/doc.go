// Package desk is the human desk: what runs ask people, and what people answer. It carries permission requests, questions,
// conversation turns and any other call of its domains.
//
// A desk stores nothing. What is open is read from the streams: a call is open until it is voided, answered or expired. So
// any number of desks may run beside each other, and one that is started again knows the same. It reads without consuming:
// services may be bound to the consumers of the same calls.
//
// Open reads what is there and keeps reading. On the Desk, List, Find, Detail and History tell what is open; Decide and
// Answer publish, and wait a moment for what becomes of it; Changes says what has changed. All methods are safe for concurrent
// use. Package requests has the values, and package show turns them into text.
package desk

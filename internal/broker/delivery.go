package broker

import "time"

// Delivery is one delivery of a stream's message to a worker. It is settled once, by Ack or Nak; a delivery that is not
// settled is delivered again, to any worker, when no InProgress came for streams.AckWait.
type Delivery interface {
	Stream() string
	// Consumer is the consumer that the delivery came by.
	Consumer() string
	// Sequence is the message's own, the same at every delivery.
	Sequence() uint64
	Subject() string
	// Header returns the value of a message header by any spelling of its name, or "".
	Header(name string) string
	// Headers are all message headers.
	Headers() map[string][]string
	Data() []byte
	// Delivered counts the deliveries of the message, from 1.
	Delivered() int
	// Backlog says that the message was stored before its consumer was made, or may have been.
	Backlog() bool
	// Received is when the broker stored the message, in Unix milliseconds: the clock that deadlines are decided by.
	Received() int64
	// Ack says that the message is done with. It does not wait for the broker: a lost ack means another delivery, which
	// is harmless.
	Ack() error
	// Nak asks for another delivery after delay.
	Nak(delay time.Duration) error
	// InProgress extends the delivery by streams.AckWait.
	InProgress() error
}

package broker

import (
	"context"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
)

// AnswerRequests answers the requests on a subject until ctx ends, each by one of the programs with the queue, and so many at once at most. A
// request whose answer is an error gets none.
func (c *Conn) AnswerRequests(ctx context.Context, subject, queue string, atOnce int, answer func(context.Context, []byte) ([]byte, error)) error {
	asked := make(chan *nats.Msg, atOnce)
	sub, err := c.nc.ChanQueueSubscribe(subject, queue, asked)
	if err != nil {
		return fmt.Errorf("hear requests on %s: %w", subject, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection may be closed
	if err := c.flush(); err != nil {
		return fmt.Errorf("hear requests on %s: %w", subject, err)
	}
	var answering sync.WaitGroup
	defer answering.Wait()
	for range atOnce {
		answering.Go(func() {
			for {
				select {
				case m := <-asked:
					c.answerOne(ctx, m, answer)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	<-ctx.Done()
	return nil
}

func (c *Conn) answerOne(ctx context.Context, m *nats.Msg, answer func(context.Context, []byte) ([]byte, error)) {
	data, err := answer(ctx, m.Data)
	if err == nil {
		err = m.Respond(data)
	}
	if err != nil {
		c.log.Error("a request is not answered", "subject", m.Subject, "error", err)
	}
}

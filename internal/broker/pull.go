package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// fetchWait is how long one request for a message stays open.
	fetchWait = 10 * time.Second
	// unsubscribeWait bounds the round trip after which nothing more can arrive.
	unsubscribeWait = 2 * time.Second
)

// puller asks a consumer for one message at a time, over one subscription. The client's own iterator prefetches or, with a
// batch of one, may stall until a heartbeat is missed; its single fetches forget their request when the connection is
// made anew, and drop what arrives while they are given up. This one does neither. Not safe for concurrent use.
type puller struct {
	*Conn
	ref ConsumerRef
	// made is when the consumer was made, as far as it is known; last numbers its latest delivery that came here. A lower number
	// comes from another consumer in its place.
	made time.Time
	last uint64
	// request is the subject of requests. Each is answered on a subject of its own under inbox, so that what the server says
	// of an earlier one is not taken for the answer to this one.
	request, inbox string
	asked          int
	body           []byte
	subscription   *nats.Subscription
	messages       chan *nats.Msg
	// again tells that the connection was made anew: the servers know nothing of earlier requests.
	again chan nats.Status
	// gone is closed when nothing can arrive any more.
	gone chan struct{}
}

// newPuller subscribes; whether the consumer exists is found out by asking it.
func (c *Conn) newPuller(ref ConsumerRef) (*puller, error) {
	body, err := json.Marshal(map[string]int64{"batch": 1, "expires": int64(fetchWait)})
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	p := &puller{
		Conn: c, ref: ref, request: "$JS.API.CONSUMER.MSG.NEXT." + StreamName(c.subjects, ref.Zone) + "." + ref.Name,
		inbox: c.nc.NewInbox(), body: body, messages: make(chan *nats.Msg, 64), gone: make(chan struct{}),
		again: c.nc.StatusChanged(nats.CONNECTED),
	}
	p.subscription, err = c.nc.ChanSubscribe(p.inbox+".*", p.messages)
	if err != nil {
		c.nc.RemoveStatusListener(p.again)
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	// The client calls it once for each drain, of the subscription and of the connection.
	gone := sync.OnceFunc(func() { close(p.gone) })
	p.subscription.SetClosedHandler(func(string) { gone() })
	return p, nil
}

// next returns a message, or nil when none came for a while or the request may be lost.
func (p *puller) next(ctx context.Context) (*nats.Msg, error) {
	for len(p.messages) > 0 { // of a request that was believed to be lost
		if m := <-p.messages; !p.status(m) {
			return m, nil
		}
	}
	if !p.nc.IsConnected() {
		select {
		case <-p.again:
		case <-time.After(fetchWait):
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	for len(p.again) > 0 {
		<-p.again
	}
	p.asked++
	answer := p.inbox + "." + strconv.Itoa(p.asked)
	if err := p.nc.PublishRequest(p.request, answer, p.body); err != nil {
		return nil, fmt.Errorf("ask for a message: %w", err)
	}
	return p.await(ctx, answer)
}

// await waits for the answer to a request.
func (p *puller) await(ctx context.Context, answer string) (*nats.Msg, error) {
	lost := time.NewTimer(fetchWait + time.Second)
	defer lost.Stop()
	for {
		select {
		case m := <-p.messages:
			if !p.status(m) {
				return m, nil
			}
			if m.Subject != answer {
				continue
			}
			switch status := m.Header.Get("Status"); status {
			case "404", "408": // there is none
				return nil, nil
			case "503":
				return nil, errors.New("the consumer does not exist, or its server is not ready")
			default:
				return nil, fmt.Errorf("the server says: %s %s", status, m.Header.Get("Description"))
			}
		case <-p.again:
			return nil, nil
		case <-lost.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// backlog reports whether a message was stored before the consumer was made. Where that cannot be found out it may have been.
func (p *puller) backlog(ctx context.Context, m *nats.MsgMetadata) bool {
	if p.made.IsZero() || m.Sequence.Consumer <= p.last {
		p.made = time.Time{}
		consumer, err := p.js.Consumer(ctx, StreamName(p.subjects, p.ref.Zone), p.ref.Name)
		if err != nil {
			p.log.Warn("consumer cannot be looked at", "consumer", p.ref.Name, "error", err)
			return true
		}
		p.made = consumer.CachedInfo().Created
	}
	p.last = m.Sequence.Consumer
	return !m.Timestamp.After(p.made)
}

// status reports whether m is what the server has to say about a request; a stream's message keeps its own subject.
func (p *puller) status(m *nats.Msg) bool { return strings.HasPrefix(m.Subject, p.inbox+".") }

// close ends the subscription and gives back what the server had already sent, which would else be missing until AckWait
// has passed.
func (p *puller) close() {
	p.nc.RemoveStatusListener(p.again)
	end := p.subscription.Drain
	if !p.nc.IsConnected() {
		end = p.subscription.Unsubscribe // there is nobody to wait for
	}
	if err := end(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
		p.log.Warn("subscription cannot be ended", "consumer", p.request, "error", err)
		return
	}
	select {
	case <-p.gone:
	case <-time.After(unsubscribeWait):
	}
	for len(p.messages) > 0 {
		if m := <-p.messages; !p.status(m) {
			p.giveBack(m)
		}
	}
}

// giveBack has a message delivered to somebody else. If that gets lost, AckWait does it.
func (p *puller) giveBack(m *nats.Msg) {
	if err := p.nc.Publish(m.Reply, []byte(ackNak)); err != nil {
		p.log.Warn("delivery could not be given back", "subject", m.Subject, "error", err)
	}
}

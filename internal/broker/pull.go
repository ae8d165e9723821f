package broker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"agentd/internal/broker/streams"
)

const (
	// fetchWait is how long one request for messages stays open. In a cluster it is clusterWait: a leader that dies takes requests along
	// without a word, and another is there after 4 to 9 s, which knows nothing of them. It is firstWait as long as no leader has answered:
	// for a while the others send requests to the one that is gone.
	fetchWait   = 10 * time.Second
	clusterWait = 5 * time.Second
	firstWait   = time.Second
	// A request that finds out how often it is answered is open for proofWait, and given up after proofLost.
	proofWait = 300 * time.Millisecond
	proofLost = time.Second
	// unasked is how long a reader may have no request open and go by what it knows of the consumer: whoever deletes one tells those that
	// wait there, and others may have had all of another one in its place that would show that it is another.
	unasked = time.Second
	// unsubscribeWait bounds the round trip after which nothing more can arrive.
	unsubscribeWait = 2 * time.Second
)

// answers is how often one request is answered. Where the consumer is another account's, its export says so, and the default is once:
// what else the request would bring goes nowhere.
type answers int

const (
	answersUnknown answers = iota
	answersOnce
	answersOften
)

// puller asks a consumer for messages, over one subscription. The client's own iterator prefetches what its program cannot
// handle; its single fetches forget their request when the connection is made anew, and drop what arrives while they are given
// up. This one does neither. Not safe for concurrent use.
type puller struct {
	*Conn
	ref streams.ConsumerRef
	// made is when the consumer was made, as far as it is known; last numbers its latest delivery that came here. A lower number
	// comes from another consumer in its place.
	made time.Time
	last uint64
	// request is the subject of requests. Each is answered on a subject of its own under inbox, so that what the server says
	// of an earlier one is not taken for the answer to this one.
	request, inbox string
	asked          int
	// most is the most messages that are asked for at once.
	most int
	// left is how many messages of the latest request may still come, until when they may, and how many answers it has had.
	left, heard int
	until       time.Time
	answers     answers
	// ended is when the latest request was.
	ended time.Time
	// led says that the consumer's leader has answered, over this connection, and the latest request was not lost.
	led bool
	// behind is since when messages wait here for a slot; zero while none does.
	behind       time.Time
	subscription *nats.Subscription
	messages     chan *nats.Msg
	// again tells that the connection was made anew: the servers know nothing of earlier requests.
	again chan nats.Status
	// gone is closed when nothing can arrive any more.
	gone chan struct{}
}

// newPuller subscribes; whether the consumer exists is found out by asking it.
// It asks for up to most messages at once.
func (c *Conn) newPuller(ref streams.ConsumerRef, most int) (*puller, error) {
	p := &puller{
		Conn: c, ref: ref, request: "$JS.API.CONSUMER.MSG.NEXT." + streams.Name(c.subjects, ref.Zone) + "." + ref.Name,
		most: most, again: c.nc.StatusChanged(nats.CONNECTED),
		messages: make(chan *nats.Msg, 2*most+62), // of a request that is believed to be lost and of another, and what the server says
	}
	if err := p.subscribe(); err != nil {
		c.nc.RemoveStatusListener(p.again)
		return nil, err
	}
	return p, nil
}

// refilled reports whether workers read the consumer, and its stream is one that they refill.
func (p *puller) refilled() bool {
	zone := streams.Whole(p.ref.Zone)
	return (zone == streams.Out || zone == streams.Timer) && streams.OfAgent(p.ref.Name)
}

func (p *puller) subscribe() (err error) {
	p.left, p.inbox, p.gone, p.ended = 0, p.nc.NewInbox(), make(chan struct{}), time.Now()
	if p.subscription, err = p.nc.ChanSubscribe(p.inbox+".*", p.messages); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	// The client calls it once for each drain, of the subscription and of the connection.
	ended := p.gone
	gone := sync.OnceFunc(func() { close(ended) })
	p.subscription.SetClosedHandler(func(string) { gone() })
	return nil
}

// ask requests up to batch messages. Without a connection it waits for one for a while.
func (p *puller) ask(ctx context.Context, batch int) error {
	if !p.nc.IsConnected() {
		select {
		case <-p.again:
		case <-time.After(fetchWait):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for len(p.again) > 0 {
		<-p.again
	}
	if time.Since(p.ended) >= unasked {
		p.made = time.Time{}
	}
	p.asked++
	wait := p.open()
	p.left, p.heard, p.until = min(batch, p.most), 0, time.Now().Add(wait+time.Second)
	body := `{"batch":%d,"expires":%d}`
	switch {
	case p.left == 1:
	case p.answers == answersOnce:
		p.left = 1
	case p.answers == answersUnknown:
		p.left, p.until = 2, time.Now().Add(proofLost)
		body, wait = fmt.Sprintf(`{"batch":%%d,"expires":%%d,"idle_heartbeat":%d}`, proofWait/3), proofWait
	}
	if err := p.nc.PublishRequest(p.request, p.answer(), fmt.Appendf(nil, body, p.left, wait)); err != nil {
		return fmt.Errorf("ask for messages: %w", err)
	}
	return nil
}

// open is how long a request is to stay open.
func (p *puller) open() time.Duration {
	switch {
	case p.nc.ConnectedClusterName() == "":
		return fetchWait
	case p.led:
		return clusterWait
	}
	return firstWait
}

// answer is the subject of answers to the latest request.
func (p *puller) answer() string { return p.inbox + "." + strconv.Itoa(p.asked) }

// next returns a message of the latest request, or of one that was believed to be lost. It returns nil when none came for a
// while, or the request may be lost.
func (p *puller) next(ctx context.Context) (*nats.Msg, error) {
	lost := time.NewTimer(time.Until(p.until))
	defer lost.Stop()
	defer func() {
		if p.left == 0 {
			p.ended = time.Now()
		}
	}()
	select {
	case m := <-p.messages:
		if p.heard++; p.heard > 1 {
			p.answers = answersOften
		}
		p.led = true
		if !p.status(m) {
			p.left = max(p.left-1, 0)
			return m, nil
		}
		return nil, p.told(m)
	case <-p.again:
	case <-lost.C:
		if p.answers == answersUnknown && p.heard == 1 {
			p.answers = answersOnce
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.left, p.led, p.made = 0, false, time.Time{}
	return nil, nil
}

// told is what the server says of a request, as an error if the consumer cannot be read.
func (p *puller) told(m *nats.Msg) error {
	status := m.Header.Get("Status")
	served := status == "100" || status == "404" || status == "408" // it is still open, or there is none
	if !served {
		p.made = time.Time{} // there may be another consumer in its place soon, also where an earlier request has waited
	}
	if m.Subject != p.answer() || status == "100" {
		return nil
	}
	p.left = 0
	switch {
	case served:
		return nil
	case status == "503":
		p.led = false
		return errors.New("the consumer does not exist, or its server is not ready")
	default:
		return fmt.Errorf("the server says: %s %s", status, m.Header.Get("Description"))
	}
}

// backlog reports whether a message was stored before the consumer was made, or set back. Where that cannot be found out it may have been.
func (p *puller) backlog(ctx context.Context, m *nats.MsgMetadata) bool {
	if again := p.last > 0 && m.Sequence.Consumer <= p.last; again || p.made.IsZero() {
		p.made = time.Time{}
		consumer, err := p.js.Consumer(ctx, streams.Name(p.subjects, p.ref.Zone), p.ref.Name)
		if err != nil {
			p.log.Warn("consumer cannot be looked at", "consumer", p.ref.Name, "error", err)
			return true
		}
		p.made = consumer.CachedInfo().Created
		if now := time.UnixMilli(p.Now()); again && now.After(p.made) {
			p.made = now // it was set back a moment ago, and counts anew what it had delivered
		}
	}
	p.last = m.Sequence.Consumer
	return !m.Timestamp.After(p.made)
}

// status reports whether m is what the server has to say about a request; a stream's message keeps its own subject.
func (p *puller) status(m *nats.Msg) bool { return strings.HasPrefix(m.Subject, p.inbox+".") }

// close ends the subscription and gives back what the server had already sent.
func (p *puller) close() {
	p.nc.RemoveStatusListener(p.again)
	p.unsubscribe()
}

// withdraw ends the latest request, so that what it would still bring goes to others, and gives back what it has brought.
func (p *puller) withdraw() error {
	p.unsubscribe()
	return p.subscribe()
}

// unsubscribe gives back what the server had already sent, which would else be missing until streams.AckWait has passed.
func (p *puller) unsubscribe() {
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

// giveBack has a message delivered to somebody else. If that gets lost, streams.AckWait does it.
func (p *puller) giveBack(m *nats.Msg) {
	if err := p.nc.Publish(m.Reply, []byte(ackNak)); err != nil {
		p.log.Warn("delivery could not be given back", "subject", m.Subject, "error", err)
	}
}

package desk

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/requests"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const (
	// maxOpen is inbox.most of desks; an item takes about a kilobyte.
	maxOpen = 100_000
	// maxRemembered bounds the changes, and the closed items, that are remembered.
	maxRemembered = 4096
)

// inbox is what is open, as the streams tell.
type inbox struct {
	subjects wire.Subjects
	now      func() time.Time

	// most bounds the open items that are kept.
	most int

	mu sync.Mutex
	// open is by the call's subject.
	open map[string]*requests.Item
	// subjectOf are the subjects of the open calls by their id.
	subjectOf map[string]string
	// early are answers to calls that have not been read yet: the streams are read side by side.
	early map[string]requests.Sent
	// voided are items whose void has been read, perhaps before an answer to them, by the call's subject.
	voided map[string]*requests.Item
	// unusable are the dead letters of answers, by their sequence in the stream of answers.
	unusable map[uint64]string
	// read is how far the streams of calls were read: each domain of each is read by itself.
	read map[calls]reached
	// omitted counts the items that were too many.
	omitted int
	// changes are the last ones, the newest at the end.
	changes []requests.Change
	number  uint64
	// changed is closed and replaced at every change.
	changed chan struct{}
	// letters get the reason of the dead letter of an answer, by the id of its event.
	letters map[string]chan string
}

// calls are those of a domain, which is its token here, on one of the streams that calls are divided into. Each stream counts by itself.
type calls struct{ stream, domain string }

// reached is a place in a stream: up to that sequence its messages were read, of which none is younger than at, in Unix milliseconds.
type reached struct {
	sequence uint64
	at       int64
}

func newInbox(subjects wire.Subjects, now func() time.Time) *inbox {
	return &inbox{
		subjects: subjects, now: now, most: maxOpen, open: map[string]*requests.Item{}, subjectOf: map[string]string{}, early: map[string]requests.Sent{}, voided: map[string]*requests.Item{},
		unusable: map[uint64]string{}, read: map[calls]reached{}, changed: make(chan struct{}), letters: map[string]chan string{},
	}
}

// called takes a message of the stream of calls: a call, or its void.
func (b *inbox) called(d broker.Delivery) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	address, err := b.subjects.Parse(d.Subject())
	if err != nil {
		return err
	}
	from := calls{d.Stream(), address.Call.Domain}
	b.read[from] = reached{d.Sequence(), max(b.read[from].at, d.Received())}
	if address.Kind == wire.KindVoid {
		b.close(b.subjects.Call(address.Call))
		return nil
	}
	i, err := newItem(d)
	if err != nil {
		return err
	}
	if i.Expires > 0 && i.Expires <= b.now().UnixMilli() || b.open[i.Subject] != nil {
		return nil
	}
	if len(b.open) >= b.most {
		b.omitted++
		return nil
	}
	i.Reminded = i.RemindersAt(b.now().UnixMilli())
	b.open[i.Subject], b.subjectOf[i.ID] = i, i.Subject
	b.change(requests.ChangeAdded, i, "")
	if sent, ok := b.early[i.Subject]; ok {
		delete(b.early, i.Subject)
		b.take(i, sent)
	}
	return nil
}

// hasRead reports whether a message of the stream of calls of a domain was read. One that is younger than all that were read was not,
// whatever its sequence: its stream was made anew, or set back to an older copy.
func (b *inbox) hasRead(domain string, d broker.Delivery) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.read[calls{d.Stream(), domain}]
	return d.Sequence() <= r.sequence && d.Received() <= r.at
}

// answered takes a message of the stream of answers.
func (b *inbox) answered(d broker.Delivery) error {
	address, err := b.subjects.Parse(d.Subject())
	if err != nil {
		return err
	}
	sent := requests.Sent{Who: address.Who, At: d.Received(), Sequence: d.Sequence()}
	if event, err := wire.DecodeEvent(d.Headers(), d.Data()); err == nil {
		if event.Type == sdk.TypePermissionViewed {
			return nil
		}
		sent.Event = event.ID
		var decision sdk.PermissionDecision
		if event.Type == sdk.TypePermissionDecided && json.Unmarshal(event.Data, &decision) == nil {
			sent.Decision, sent.Reason = decision.Decision, shorten(decision.Reason)
		}
	}
	subject := b.subjects.Call(address.Call)
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := b.open[subject]; i != nil {
		b.take(i, sent)
		return nil
	}
	if i := b.voided[subject]; i != nil {
		b.voided[subject] = b.with(i, sent)
		b.change(requests.ChangeDecided, b.voided[subject], "")
		return nil
	}
	if len(b.early) >= maxRemembered {
		clear(b.early) // almost all are of calls that have been closed
	}
	b.early[subject] = sent
	return nil
}

// take notes an answer to an open item. A permission request stays open until the run has judged the decision.
func (b *inbox) take(i *requests.Item, sent requests.Sent) {
	changed := b.with(i, sent)
	b.open[i.Subject] = changed
	b.change(requests.ChangeDecided, changed, "")
	if i.Kind != requests.KindPermission && b.unusable[sent.Sequence] == "" {
		b.remove(i.Subject, requests.ReasonAnswered)
	}
}

// with is the item with one answer more, and why that was refused, whose dead letter may have been read before it or before the call.
func (b *inbox) with(i *requests.Item, sent requests.Sent) *requests.Item {
	sent.Refused = b.unusable[sent.Sequence]
	changed := *i
	changed.Sent = append(slices.Clone(i.Sent), sent)
	if len(changed.Sent) > maxSent {
		changed.Sent = changed.Sent[1:]
	}
	return &changed
}

// rejected takes a dead letter of an answer. A question whose answer could not be used is still open.
func (b *inbox) rejected(d broker.Delivery) error {
	address, err := b.subjects.Parse(d.Header(headerSubject))
	if err != nil || address.Kind != wire.KindIn {
		return nil // of another kind of message
	}
	sequence, err := strconv.ParseUint(d.Subject()[strings.LastIndexByte(d.Subject(), '.')+1:], 10, 64)
	if err != nil {
		return fmt.Errorf("read dead letter %s: %w", d.Subject(), err)
	}
	detail := d.Header(headerDetail)
	b.mu.Lock()
	defer b.mu.Unlock()
	if event, err := wire.DecodeEvent(d.Headers(), d.Data()); err == nil && b.letters[event.ID] != nil {
		b.letters[event.ID] <- detail // it has room for the one letter of an event
		delete(b.letters, event.ID)
	}
	subject := b.subjects.Call(address.Call)
	if i := b.open[subject]; i != nil {
		b.refuse(i, sequence, detail)
	}
	if waits(sdk.Code(d.Header(headerReason))) && len(b.unusable) < maxUnusable {
		b.unusable[sequence] = detail
		b.reopen(subject, sequence, detail)
	}
	return nil
}

// maxUnusable bounds the dead letters that are remembered.
const maxUnusable = 1 << 16

// waits reports whether the run still waits after it refused an answer for that reason.
func waits(reason sdk.Code) bool {
	return reason == sdk.CodeContractViolation || reason == sdk.CodeInvalidEvent || reason == sdk.CodeTooLarge ||
		reason == sdk.CodeIdentityRequired
}

// The headers of dead letters that the inbox reads (docs/wire.md).
const (
	headerReason  = "agentd-reason"
	headerDetail  = "agentd-detail"
	headerSubject = "agentd-subject"
)

// refuse notes that an answer could not be used.
func (b *inbox) refuse(i *requests.Item, sequence uint64, why string) {
	changed := *i
	changed.Sent = slices.Clone(i.Sent)
	for n := range changed.Sent {
		if changed.Sent[n].Sequence == sequence {
			changed.Sent[n].Refused = why
		}
	}
	b.open[i.Subject] = &changed
	b.change(requests.ChangeDecided, &changed, "")
}

// reopen puts back an item that was taken for answered by the answer with that sequence.
func (b *inbox) reopen(subject string, sequence uint64, why string) {
	for n := len(b.changes) - 1; n >= 0; n-- {
		c := b.changes[n]
		if c.Item.Subject != subject || c.Kind != requests.ChangeRemoved || c.Reason != requests.ReasonAnswered {
			continue
		}
		last := len(c.Item.Sent) - 1
		if last >= 0 && c.Item.Sent[last].Sequence == sequence && (c.Item.Expires == 0 || c.Item.Expires > b.now().UnixMilli()) {
			item := c.Item
			b.open[subject], b.subjectOf[item.ID] = &item, subject
			b.change(requests.ChangeAdded, &item, "")
			b.refuse(&item, sequence, why)
		}
		return
	}
}

// close removes an item that a run does not wait for any more. The answer to it may not have been read yet, and is told then.
func (b *inbox) close(subject string) {
	if i := b.open[subject]; i != nil {
		if len(b.voided) >= maxRemembered {
			clear(b.voided) // the answers to almost all have been read
		}
		b.voided[subject] = i
	}
	b.remove(subject, requests.ReasonClosed)
}

func (b *inbox) remove(subject string, why requests.Reason) {
	i := b.open[subject]
	if i == nil {
		return
	}
	delete(b.open, subject)
	delete(b.subjectOf, i.ID)
	b.change(requests.ChangeRemoved, i, why)
}

func (b *inbox) change(kind requests.ChangeKind, i *requests.Item, why requests.Reason) {
	b.number++
	b.changes = append(b.changes, requests.Change{Number: b.number, Kind: kind, Item: *i, Reason: why})
	if len(b.changes) > 2*maxRemembered { // so that a change costs the same, however many there were
		b.changes = slices.Clone(b.changes[len(b.changes)-maxRemembered:])
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

// expire removes what nobody waits for any more, and reminds of what somebody should have decided.
func (b *inbox) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now().UnixMilli()
	for subject, i := range b.open {
		if i.Expires > 0 && i.Expires <= now {
			b.remove(subject, requests.ReasonExpired)
			continue
		}
		if due := i.RemindersAt(now); due > i.Reminded {
			changed := *i
			changed.Reminded = due
			b.open[subject] = &changed
			b.change(requests.ChangeReminded, &changed, "")
		}
	}
}

// list returns the open items, the oldest first, with their short ids.
func (b *inbox) list() []requests.Item {
	b.mu.Lock()
	items := make([]requests.Item, 0, len(b.open))
	for _, i := range b.open {
		items = append(items, *i)
	}
	b.mu.Unlock()
	shortIDs(items)
	slices.SortFunc(items, func(x, y requests.Item) int { return cmp.Compare(x.Sequence, y.Sequence) })
	return items
}

// shortIDs sets Short: a beginning of the hash that no other of the items has. It sorts them.
func shortIDs(items []requests.Item) {
	slices.SortFunc(items, func(x, y requests.Item) int { return cmp.Compare(x.Hash, y.Hash) })
	for n := range items {
		hash, length := items[n].Hash, requests.ShortLength
		if n > 0 {
			length = max(length, common(hash, items[n-1].Hash)+1)
		}
		if n+1 < len(items) {
			length = max(length, common(hash, items[n+1].Hash)+1)
		}
		items[n].Short = hash[:min(length, len(hash))]
	}
}

// common is how many bytes two texts begin with alike.
func common(x, y string) int {
	n := 0
	for n < len(x) && n < len(y) && x[n] == y[n] {
		n++
	}
	return n
}

// exact is the open item with that id, without its short one: a decision takes as long, however many items there are.
func (b *inbox) exact(id string) (requests.Item, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.open[b.subjectOf[id]]
	if i == nil || i.Expires > 0 && i.Expires <= b.now().UnixMilli() {
		return requests.Item{}, false
	}
	return *i, true
}

// beginning selects the items whose id, or its hash, begins with prefix. A whole id is that of one request alone: the ids of those that are
// asked after it, of another domain or once more, begin with it, and whoever decides has not seen them.
func beginning(prefix string) func(*requests.Item) bool {
	if _, whole := wire.ParseCallRef(prefix); whole {
		return func(i *requests.Item) bool { return i.ID == prefix }
	}
	return func(i *requests.Item) bool {
		return prefix != "" && (strings.HasPrefix(i.ID, prefix) || strings.HasPrefix(i.Hash, prefix))
	}
}

// find returns the open item whose id, or its hash, begins with prefix. The error is CodeUnknownRun, or that of missing.
func (b *inbox) find(prefix string) (requests.Item, error) {
	matches := beginning(prefix)
	var found []*requests.Item
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, i := range b.open {
		if i.ID == prefix {
			return b.named(i), nil
		}
		if matches(i) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 1:
		return b.named(found[0]), nil
	case 0:
		return requests.Item{}, b.missing(prefix, matches)
	}
	return requests.Item{}, sdk.Errorf(sdk.CodeUnknownRun, "%d open requests begin with %q; write more of the id", len(found), prefix)
}

// named is the item with its short id.
func (b *inbox) named(i *requests.Item) requests.Item {
	length := requests.ShortLength
	for _, other := range b.open {
		if other != i {
			length = max(length, common(i.Hash, other.Hash)+1)
		}
	}
	named := *i
	named.Short = i.Hash[:min(length, len(i.Hash))]
	return named
}

// missing says why nothing that matches is open, as far as it is remembered. While some that are open are not kept, nobody is told that it is none
// of them: the error is CodeUnavailable.
func (b *inbox) missing(prefix string, matches func(*requests.Item) bool) error {
	if c, known := b.lastOf(matches); known {
		return sdk.Errorf(sdk.CodeUnknownRun, "request %s is not open: it %s; see: agentd approvals log", c.Item.ID, c.Reason.Text())
	}
	if b.omitted > 0 {
		return sdk.Errorf(sdk.CodeUnavailable, "%q may be one of %d open requests that are too many to be kept; decide some of the others, and open the desk again",
			prefix, b.omitted)
	}
	return sdk.Errorf(sdk.CodeUnknownRun, "no open request begins with %q; see: agentd approvals list, with --domain '*' for all domains", prefix)
}

// removed is what is remembered of an item that find does not find.
func (b *inbox) removed(prefix string) (requests.Change, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lastOf(beginning(prefix))
}

// lastOf is the removal of the last item that matches, of none that is open, with the item as it is known: an answer may be read after it.
func (b *inbox) lastOf(matches func(*requests.Item) bool) (last requests.Change, known bool) {
	for n := len(b.changes) - 1; n >= 0; n-- {
		c := &b.changes[n]
		if !matches(&c.Item) || known && c.Item.Subject != last.Item.Subject {
			continue
		}
		if !known {
			last, known = *c, true
		}
		if c.Kind == requests.ChangeRemoved {
			last.Kind, last.Reason = c.Kind, c.Reason
			return last, true
		}
	}
	return requests.Change{}, false
}

// errGap says that changes were forgotten that somebody has not seen.
var errGap = errors.New("changes were forgotten")

// since returns the changes after a number, and a channel that is closed at the next. errGap comes when some are gone.
func (b *inbox) since(number uint64) ([]requests.Change, <-chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if number > b.number || len(b.changes) > 0 && number+1 < b.changes[0].Number {
		return nil, nil, errGap
	}
	first := len(b.changes) - int(b.number-number)
	return slices.Clone(b.changes[first:]), b.changed, nil
}

// await registers interest in the dead letter of an answer.
func (b *inbox) await(event string) (letter <-chan string, stop func()) {
	waiting := make(chan string, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.letters[event] = waiting
	return waiting, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.letters, event)
	}
}

// stillOpen reports whether an item is open, and gives a channel that is closed at the next change.
func (b *inbox) stillOpen(subject string) (open bool, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open[subject] != nil, b.changed
}

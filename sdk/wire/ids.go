package wire

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"
)

var tokenEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// token26 is the lower-case base32 of the first 16 bytes of a digest: 26 characters.
func token26(digest [sha256.Size]byte) string {
	var text [tokenLen]byte
	tokenEncoding.Encode(text[:], digest[:16])
	return string(text[:])
}

// RunKey addresses a run in subjects and stores. It is derived from the event's subject, so its text never enters a
// NATS subject or a store's key.
type RunKey struct {
	// Partition is the first byte of the digest as three decimal digits, "000" to "255".
	Partition string `json:"partition"`
	// Token is 26 characters of lower-case base32.
	Token string `json:"token"`
}

// NewRunKey returns the key of the run that a CloudEvents subject names.
func NewRunKey(subject string) RunKey {
	digest := sha256.Sum256([]byte(subject))
	return RunKey{Partition: partition(digest[0]), Token: token26(digest)}
}

// partition writes the first byte of a digest in three decimal digits.
func partition(first byte) string {
	return string([]byte{'0' + first/100, '0' + first/10%10, '0' + first%10})
}

func (k RunKey) String() string { return k.Partition + "." + k.Token }

// InitToken identifies an init event by its source and id.
func InitToken(source, id string) string {
	return token26(sha256.Sum256([]byte(source + "\x00" + id)))
}

// MessageID names a message that was sent into a run, in RunStatus.Heard.
func MessageID(source, id string) string { return "n" + InitToken(source, id) }

// DefaultSubject is the run subject of an init event that has none.
func DefaultSubject(initToken string) string { return "run-" + initToken }

// TerminalID is the event id of a run's terminal event. It depends on nothing but run and init, so two different ends of
// one init collide at the broker.
func TerminalID(run RunKey, initToken string) string {
	return "t-" + token26(sha256.Sum256([]byte(run.Token+"\x00"+initToken)))
}

// CallID mints the id of a tool call: "c<step>-<index>-<26 characters>", at most 40 characters of [A-Za-z0-9_-]. It is
// the event id, the subject token, the idempotency key and the id shown to the provider. It covers the content, so that
// an answer to one call never matches another (design: a rolled-back step may be run again with another reply).
// args must be canonical (Canonicalize).
func CallID(run RunKey, initToken string, step, index int, tool string, args []byte) string {
	h := sha256.New()
	for _, part := range []string{run.Token, initToken, strconv.Itoa(step), strconv.Itoa(index), tool} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	h.Write(args)
	return fmt.Sprintf("c%d-%d-%s", step, index, token26([sha256.Size]byte(h.Sum(nil))))
}

// CallPlace is the beginning of a call's id, such as "c3-0": the number of its round and its place there, which occur once in a
// run. Models name results by it.
func CallPlace(id string) string {
	if i := strings.LastIndexByte(id, '-'); i > 0 {
		return id[:i]
	}
	return id
}

// CallRef is a parsed call token: a call id, the attempt (1 is the first), and the domain's token when the event is one
// of several domains' and not the first's.
type CallRef struct {
	ID      string
	Step    int
	Index   int
	Attempt int
	Domain  string
}

// ParseCallRef parses the last token of a call's subject, which is also the event id of the call:
// "c<step>-<index>-<26 characters>", "-r<attempt>" from the second attempt on, and "-<domain>" where that is named.
func ParseCallRef(token string) (CallRef, bool) {
	ref := CallRef{Attempt: 1}
	rest, ok := strings.CutPrefix(token, "c")
	step, rest, _ := strings.Cut(rest, "-")
	index, rest, _ := strings.Cut(rest, "-")
	if ref.Step, ok = parseCount(step, 6, ok); !ok {
		return CallRef{}, false
	}
	if ref.Index, ok = parseCount(index, 4, ok); !ok || len(rest) < tokenLen || !isToken26(rest[:tokenLen]) {
		return CallRef{}, false
	}
	rest = rest[tokenLen:]
	ref.ID = token[:len(token)-len(rest)]
	if attempt, after, found := cutAttempt(rest); found {
		if ref.Attempt, ok = parseCount(attempt, 4, true); !ok || ref.Attempt < 2 {
			return CallRef{}, false
		}
		rest = after
	}
	if rest == "" {
		return ref, true
	}
	// What begins like an attempt without being one is not a domain either.
	if _, _, again := cutAttempt(rest); again || rest[0] != '-' || len(rest) > 65 || len(rest) < 2 || rest[1] == '-' || rest[1] == '_' || !IsToken(rest[1:], longestName) {
		return CallRef{}, false
	}
	ref.Domain = rest[1:]
	return ref, true
}

// tokenLen is the length of a token26.
const tokenLen = 26

func isToken26(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return len(text) == tokenLen
}

// parseCount parses a number of at most that many digits without leading zeros, if ok.
func parseCount(text string, digits int, ok bool) (int, bool) {
	if !ok || text == "" || len(text) > digits || text[0] == '0' && text != "0" {
		return 0, false
	}
	n := 0
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
		n = 10*n + int(text[i]-'0')
	}
	return n, true
}

// cutAttempt cuts "-r" and digits off the beginning of text, if they are there as a part of their own.
func cutAttempt(text string) (digits, after string, found bool) {
	rest, ok := strings.CutPrefix(text, "-r")
	if !ok {
		return "", text, false
	}
	n := 0
	for n < len(rest) && '0' <= rest[n] && rest[n] <= '9' {
		n++
	}
	if n == 0 || n < len(rest) && rest[n] != '-' {
		return "", text, false
	}
	return rest[:n], rest[n:], true
}

// EventID is the event id and subject token of the event that carries the call.
func (r CallRef) EventID() string {
	var b strings.Builder
	b.WriteString(r.ID)
	if r.Attempt > 1 {
		b.WriteString("-r" + strconv.Itoa(r.Attempt))
	}
	if r.Domain != "" {
		b.WriteString("-" + r.Domain)
	}
	return b.String()
}

package wire

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"agentd/sdk"
)

// DefaultRoot is the first token of every subject.
const DefaultRoot = "agentd"

// LocalDomain is the domain token of a call without a domain.
const LocalDomain = "local"

// Subjects builds and parses NATS subjects (docs/wire.md, "Subjects"). The zero value is not usable; see NewSubjects.
type Subjects struct{ root string }

var rootPattern = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

// NewSubjects returns the subjects under root, a single token.
func NewSubjects(root string) (Subjects, error) {
	if !rootPattern.MatchString(root) {
		return Subjects{}, sdk.Errorf(sdk.CodeConfig, "subject root %q is not of the form %s", root, rootPattern)
	}
	return Subjects{root: root}, nil
}

// DefaultSubjects returns the subjects under DefaultRoot.
func DefaultSubjects() Subjects { return Subjects{root: DefaultRoot} }

// Root is the first token of every subject.
func (s Subjects) Root() string { return s.root }

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$`)

// IsToken reports whether t is 1 to most letters, digits, "_" and "-". It sees every token of every message, and a regular expression
// takes thirty times as long.
func IsToken(t string, most int) bool {
	for i := range len(t) {
		switch c := t[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return 1 <= len(t) && len(t) <= most
}

// longestName is how many characters a name, a token and a principal have at most.
const longestName = 128

// MaxKeyID is how many characters the id of a key has at most that stores are sealed with, which stands before all that they keep.
const MaxKeyID = 32

// CheckName reports whether name (of an agent, an event type or a domain) can be mapped to a subject token: letters,
// digits, "_", "-" and single dots, at most 128 characters.
func CheckName(name string) error {
	if len(name) > longestName || !namePattern.MatchString(name) {
		return sdk.Errorf(sdk.CodeConfig, "name %q: want letters, digits, \"_\", \"-\" and single dots, at most 128 characters", name)
	}
	return nil
}

var attemptLike = regexp.MustCompile(`^r[0-9]+(-|$)`)

// CheckDomain is CheckName for a domain, which also becomes part of event ids (CallRef): at most 64 characters, and its
// token must not read as the attempt of a call, such as "r2". The empty domain is allowed: it is LocalDomain.
func CheckDomain(name string) error {
	if name == "" {
		return nil
	}
	if err := CheckName(name); err != nil {
		return err
	}
	if len(name) > 64 || attemptLike.MatchString(NameToken(name)) {
		return sdk.Errorf(sdk.CodeConfig, "domain %q: want at most 64 characters that do not begin like an attempt (r2, r2-…)", name)
	}
	return nil
}

// NameToken maps a name to its subject token: dots become underscores. Names that collide are refused where they are
// loaded; an empty domain is LocalDomain. What is too long to be a name has a token that no name has: a server closes the connection of
// whoever sends it a subject of some thousand characters.
func NameToken(name string) string {
	if len(name) > longestName {
		return "-" + NewRunKey(name).Token
	}
	return strings.ReplaceAll(name, ".", "_")
}

// DomainToken is NameToken, with LocalDomain for the empty domain.
func DomainToken(domain string) string {
	if domain == "" {
		return LocalDomain
	}
	return NameToken(domain)
}

// Kind is the second token of a subject: what a message is.
type Kind string

// The kinds.
const (
	KindStart  Kind = "start"  // init events
	KindOut    Kind = "out"    // calls
	KindVoid   Kind = "void"   // a call was cancelled or timed out
	KindIn     Kind = "in"     // responses
	KindCtl    Kind = "ctl"    // cancel, message
	KindDone   Kind = "done"   // terminal events
	KindTimer  Kind = "tmr"    // armed timers
	KindFire   Kind = "fire"   // fired timers
	KindRun    Kind = "run"    // the journal
	KindBlob   Kind = "blob"   // large contents of the journal
	KindSpec   Kind = "spec"   // agent specs by digest
	KindCold   Kind = "cold"   // archives of journals
	KindStream Kind = "stream" // live events
	KindWatch  Kind = "watch"  // who reads live events says so
	KindWake   Kind = "wake"   // whoever drives the run should look at its journal
	KindGet    Kind = "get"    // queries about a run
	KindRead   Kind = "read"   // requests for messages of a stream
	KindDLQ    Kind = "dlq"    // dead letters
	KindIndex  Kind = "idx"    // documents of the index of runs, and questions to it
	// KindContract are requests for the contract that a service or an agent serves.
	KindContract Kind = "contract"
)

// CallAddress is where a call lives: all fields are subject tokens. Agent is the one who asks.
type CallAddress struct {
	Domain string `json:"domain"`
	Type   string `json:"type"`
	Agent  string `json:"agent"`
	Run    RunKey `json:"run"`
	Call   string `json:"call"`
}

func (s Subjects) join(kind Kind, tokens ...string) string {
	var b strings.Builder
	b.Grow(128) // most subjects fit
	b.WriteString(s.root)
	b.WriteByte('.')
	b.WriteString(string(kind))
	for _, t := range tokens {
		b.WriteByte('.')
		b.WriteString(t)
	}
	return b.String()
}

func (s Subjects) call(kind Kind, a CallAddress) string {
	return s.join(kind, a.Domain, a.Type, a.Agent, a.Run.Partition, a.Run.Token, a.Call)
}

// Start is the subject of init events for agent.
func (s Subjects) Start(agent string) string { return s.join(KindStart, NameToken(agent)) }

// Call is the subject of a call, Reply of its answers, Void of its end without one.
func (s Subjects) Call(a CallAddress) string { return s.call(KindOut, a) }

// Reply is the subject of answers to a call: its own with "out" replaced by "in".
func (s Subjects) Reply(a CallAddress) string { return s.call(KindIn, a) }

// Void is the subject that tells a service that nobody waits for a call any more.
func (s Subjects) Void(a CallAddress) string { return s.call(KindVoid, a) }

// ControlVerb is what a control message asks of a run.
type ControlVerb string

// The control verbs.
const (
	ControlCancel ControlVerb = "cancel"
	// ControlCancelCall gives up one call of a run, which goes on.
	ControlCancelCall ControlVerb = "cancel_call"
	ControlMessage    ControlVerb = "message"
	// ControlPause lets a run do nothing more until ControlResume.
	ControlPause  ControlVerb = "pause"
	ControlResume ControlVerb = "resume"
	// ControlUnpark has a parked run tried again at once.
	ControlUnpark ControlVerb = "unpark"
	// ControlRetry takes up a run that has ended.
	ControlRetry ControlVerb = "retry"
	// ControlUndo has calls of a run that has ended undone.
	ControlUndo ControlVerb = "undo"
	// ControlTag changes by which tags people find a run.
	ControlTag ControlVerb = "tag"
)

// controls are the verbs that this version knows.
var controls = []ControlVerb{ControlCancel, ControlCancelCall, ControlMessage, ControlPause, ControlResume, ControlUnpark, ControlRetry, ControlUndo, ControlTag}

// Known reports whether this version knows the verb. A later one may know more.
func (v ControlVerb) Known() bool { return slices.Contains(controls, v) }

// Control is the subject of a control message to a run.
func (s Subjects) Control(verb ControlVerb, agent string, run RunKey) string {
	return s.join(KindCtl, string(verb), NameToken(agent), run.Partition, run.Token)
}

// Done is the subject of a run's terminal event.
func (s Subjects) Done(agent string, run RunKey, initToken string) string {
	return s.join(KindDone, NameToken(agent), run.Partition, run.Token, initToken)
}

// Timer is the subject on which a run's one timer is armed, Fire the one on which it fires.
func (s Subjects) Timer(agent string, run RunKey) string {
	return s.join(KindTimer, NameToken(agent), run.Partition, run.Token)
}

// Fire is where a run's timer fires.
func (s Subjects) Fire(agent string, run RunKey) string {
	return s.join(KindFire, NameToken(agent), run.Partition, run.Token)
}

// Journal is the subject of a run's journal entries.
func (s Subjects) Journal(run RunKey) string { return s.join(KindRun, run.Partition, run.Token) }

// Blob is the subject of a large content of a run's journal, by the lower-case hexadecimal SHA-256 of the content.
func (s Subjects) Blob(run RunKey, digest string) string {
	return s.join(KindBlob, run.Partition, run.Token, digest)
}

// Spec is the subject of a stored agent spec, by the lower-case hexadecimal SHA-256 of its JSON.
func (s Subjects) Spec(digest string) string { return s.join(KindSpec, digest) }

// Cold is the subject of the archive of a run's journal.
func (s Subjects) Cold(run RunKey) string { return s.join(KindCold, run.Partition, run.Token) }

// Index is the subject of a run's document in the index of runs, and IndexQuery that of questions to whoever has the index.
func (s Subjects) Index(run RunKey) string { return s.join(KindIndex, run.Partition, run.Token) }

// IndexQuery is the request subject for pages of the index of runs.
func (s Subjects) IndexQuery() string { return s.join(KindIndex, "query") }

// Live is the subject of a run's live events (core NATS, lossy).
func (s Subjects) Live(agent string, run RunKey) string {
	return s.join(KindStream, NameToken(agent), run.Partition, run.Token)
}

// all stands in the subjects of watchers for all agents, or all runs of an agent.
const all = "all"

// LiveFilter is the filter for the live events that a watcher reads: of a run, of all runs of an agent where run is zero, or of all
// agents where agent is empty too.
func (s Subjects) LiveFilter(agent string, run RunKey) string {
	switch {
	case agent == "":
		return s.All(KindStream)
	case run == RunKey{}:
		return s.join(KindStream, NameToken(agent), ">")
	}
	return s.Live(agent, run)
}

// Watch is where a watcher announces what it reads, as LiveFilter has it (core NATS, lossy).
func (s Subjects) Watch(agent string, run RunKey) string {
	switch {
	case agent == "":
		return s.join(KindWatch, all, all, all)
	case run == RunKey{}:
		return s.join(KindWatch, NameToken(agent), all, all)
	}
	return s.join(KindWatch, NameToken(agent), run.Partition, run.Token)
}

// Watches is the filter for all announcements of watchers.
func (s Subjects) Watches() string { return s.join(KindWatch, "*", "*", "*") }

// WatchAsk is where a worker that has just connected has all watchers announce again what they read (core NATS, lossy).
func (s Subjects) WatchAsk() string { return s.join(KindWatch, "ask") }

// Wake is where the driver of a run is told that the run is to end (core NATS, lossy).
func (s Subjects) Wake(agent string, run RunKey) string {
	return s.join(KindWake, NameToken(agent), run.Partition, run.Token)
}

// Get is the request subject for queries about an agent's runs, whoever started them. GetAs is that for those that a
// principal started.
func (s Subjects) Get(agent string) string { return s.join(KindGet, NameToken(agent)) }

// GetAs is Get for the runs of a principal.
func (s Subjects) GetAs(agent, who string) string { return s.join(KindGet, NameToken(agent), who) }

// Read is the request subject for the messages of a stream on a filter.
func (s Subjects) Read(stream, filter string) string { return s.join(KindRead, stream, filter) }

// Contract is the request subject for the contract of that type, which whoever serves it answers.
func (s Subjects) Contract(contractType string) string {
	return s.join(KindContract, NameToken(contractType))
}

// DeadLetter is the subject of a message that could not be handled: the reason, the stream it came from and its
// sequence there, so that each is dead-lettered once.
func (s Subjects) DeadLetter(reason sdk.Code, stream string, sequence uint64) string {
	return s.join(KindDLQ, string(reason), strings.ToLower(stream), fmt.Sprint(sequence))
}

// DeadCall is DeadLetter of what a service could not handle: it ends with the domain and the type that the service answers, which is as
// far as its rights go.
func (s Subjects) DeadCall(reason sdk.Code, stream string, sequence uint64, domain, contractType string) string {
	return s.DeadLetter(reason, stream, sequence) + "." + DomainToken(domain) + "." + NameToken(contractType)
}

// All is the filter for all subjects of a kind.
func (s Subjects) All(kind Kind) string { return s.root + "." + string(kind) + ".>" }

// Address is a parsed subject. Fields that the kind does not have are empty.
type Address struct {
	Kind Kind
	// Call is set for out, in and void; its Agent and Run are copied to Agent and Run.
	Call CallAddress
	// Agent is the agent's token. It is empty in a watcher's announcement for all agents, and Run zero in one for all runs.
	Agent string
	Run   RunKey
	Verb  ControlVerb
	// Init is the init token of a terminal event.
	Init string
	// Who is the principal that the broker enforced as last token; empty is anonymous.
	Who string
}

// mostTokens is how many tokens a subject that Parse reads has at most after its root.
const mostTokens = 8

// Parse parses the subjects that workers and services consume: start, out, void, in, ctl, done, fire, wake and watch. The verb of a ctl subject
// may be one that only a later version knows.
func (s Subjects) Parse(subject string) (Address, error) {
	bad := func() error { return sdk.Errorf(sdk.CodeInvalidEvent, "%q is not one of agentd's subjects", subject) }
	var list [mostTokens]string
	tokens, ok := s.tokens(list[:0], subject)
	if !ok {
		return Address{}, bad()
	}
	a := Address{Kind: Kind(tokens[0])}
	t := tokens[1:]
	who := func(n int, allowed bool) bool {
		if allowed && len(t) == n+1 {
			a.Who = t[n]
			return true
		}
		return len(t) == n
	}
	valid := false
	switch a.Kind {
	case KindStart:
		if valid = who(1, true); valid {
			a.Agent = t[0]
		}
	case KindOut, KindVoid, KindIn:
		if valid = who(6, a.Kind == KindIn); valid {
			a.Call = CallAddress{Domain: t[0], Type: t[1], Agent: t[2], Run: RunKey{t[3], t[4]}, Call: t[5]}
			a.Agent, a.Run = a.Call.Agent, a.Call.Run
		}
	case KindCtl:
		if valid = who(4, true); valid {
			a.Verb, a.Agent, a.Run = ControlVerb(t[0]), t[1], RunKey{t[2], t[3]}
		}
	case KindDone:
		if valid = who(4, false); valid {
			a.Agent, a.Run, a.Init = t[0], RunKey{t[1], t[2]}, t[3]
		}
	case KindFire, KindWake:
		if valid = who(3, false); valid {
			a.Agent, a.Run = t[0], RunKey{t[1], t[2]}
		}
	case KindWatch:
		valid = who(3, false)
		switch {
		case !valid:
		case t[1] != all || t[2] != all:
			a.Agent, a.Run = t[0], RunKey{t[1], t[2]}
		case t[0] != all:
			a.Agent = t[0]
		}
	default:
	}
	if !valid || (a.Run != RunKey{} && !a.Run.valid()) {
		return Address{}, bad()
	}
	return a, nil
}

// tokens appends the tokens of a subject that follow the root; ok is false where they are none of agentd's, or too many.
func (s Subjects) tokens(list []string, subject string) (tokens []string, ok bool) {
	root, rest, ok := strings.Cut(subject, ".")
	if !ok || root != s.root || len(subject) > 1024 {
		return nil, false
	}
	for t := range strings.SplitSeq(rest, ".") {
		if !IsToken(t, longestName) || len(list) == mostTokens {
			return nil, false
		}
		list = append(list, t)
	}
	return list, true
}

// valid reports whether the partition is the one of the token.
func (k RunKey) valid() bool {
	if !isToken26(k.Token) {
		return false
	}
	// 26 characters hold two bits more than 16 bytes: only one spelling of each token is valid.
	last := tokenValue(k.Token[len(k.Token)-1])
	return last&3 == 0 && k.Partition == partition(tokenValue(k.Token[0])<<3|tokenValue(k.Token[1])>>2)
}

// tokenValue is what one character of a token26 stands for, 0 to 31.
func tokenValue(c byte) byte {
	if c >= 'a' {
		return c - 'a'
	}
	return c - '2' + 26
}

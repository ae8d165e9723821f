package accounts

import (
	"fmt"
	"slices"
	"strings"

	"agentd/sdk/wire"
)

// account is an account of the server.
type account struct {
	name      string
	jetStream bool
	users     []User
	secrets   []string
	exports   []export
	// imports are as they stand in the file.
	imports []string
}

// export is a subject that accounts may import: a service that they ask, or a stream that they hear.
type export struct {
	kind, subject string
	accounts      []string
}

const (
	service = "service"
	stream  = "stream"
)

// jetStreamInfo is imported from a subject that nobody answers. An account without JetStream has an import of the whole API of
// its own, which says that JetStream is not enabled, and is often quicker than the answer from elsewhere; the server leaves
// it out where an account imports this subject (enableJetStreamInfoServiceImportOnly of nats-server 2.15).
const jetStreamInfo = "$JS.API.INFO"

// layOut puts the trusted users into the account of the streams, and each other user into one of its own: two in one account
// could have the server publish in each other's name, and into each other's inbox.
func layOut(name string, users []User, secrets []string) []account {
	accounts := []account{{name: name, jetStream: true}}
	for i := range users {
		u := &users[i]
		if u.trusted() {
			accounts[0].users, accounts[0].secrets = append(accounts[0].users, *u), append(accounts[0].secrets, secrets[i])
			continue
		}
		own := account{name: AccountOf(name, u.Name), users: []User{*u}, secrets: []string{secrets[i]}}
		if u.Asked {
			accounts = append(accounts, own)
			continue
		}
		accounts[0].exportTo(&own, service, name+".nothing", jetStreamInfo)
		for _, subject := range unique(u.Publish) {
			if subject != replies && subject != userInfo { // those are the account's own
				accounts[0].exportTo(&own, service, subject, subject)
			}
		}
		for _, subject := range unique(u.Subscribe) {
			if !strings.HasPrefix(subject, "_INBOX_") && !slices.Contains(u.Answers, subject) {
				accounts[0].exportTo(&own, stream, subject, subject)
			}
		}
		for _, subject := range unique(u.Answers) {
			own.exportTo(&accounts[0], service, subject, subject)
		}
		accounts = append(accounts, own)
	}
	return accounts
}

// exportTo lets another account import a subject, under the name that it has there.
func (a *account) exportTo(other *account, kind, subject, there string) {
	i := slices.IndexFunc(a.exports, func(e export) bool { return e.kind == kind && e.subject == subject })
	if i < 0 {
		i = len(a.exports)
		a.exports = append(a.exports, export{kind: kind, subject: subject})
	}
	a.exports[i].accounts = append(a.exports[i].accounts, other.name)
	renamed := ""
	if there != subject {
		renamed = fmt.Sprintf(", to: %q", there)
	}
	other.imports = append(other.imports, fmt.Sprintf("{%s: {account: %q, subject: %q}%s}", kind, a.name, subject, renamed))
}

// several reports whether a request has several answers: the server forgets the way back after the first one otherwise.
func (e export) several() bool {
	tokens := strings.SplitN(e.subject, ".", 3)
	return e.kind == service && (tokens[0] == "$SRV" || tokens[1] == string(wire.KindRead))
}

func (a *account) write(b *strings.Builder) {
	fmt.Fprintf(b, "  %q {\n", a.name)
	if a.jetStream {
		b.WriteString("    jetstream: enabled\n")
	}
	b.WriteString("    users = [\n")
	for i := range a.users {
		writeUser(b, &a.users[i], a.secrets[i])
	}
	b.WriteString("    ]\n")
	if len(a.exports) > 0 {
		b.WriteString("    exports = [\n")
		for _, e := range a.exports {
			answers := ""
			if e.several() {
				answers = ", response_type: stream"
			}
			fmt.Fprintf(b, "      {%s: %q, accounts: [%s]%s}\n", e.kind, e.subject, quoted(e.accounts), answers)
		}
		b.WriteString("    ]\n")
	}
	if len(a.imports) > 0 {
		fmt.Fprintf(b, "    imports = [\n      %s\n    ]\n", strings.Join(a.imports, "\n      "))
	}
	b.WriteString("  }\n")
}

func quoted(names []string) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(list, ", ")
}

func unique(list []string) []string {
	var once []string
	for _, s := range list {
		if !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return once
}

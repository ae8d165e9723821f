package accounts

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"agentd/internal/broker"
	"agentd/sdk"
)

// Server is what a configuration says beside its users.
type Server struct {
	// Account is the account of the streams, in which workers and operators are; the account of any other user is named after both.
	// Listen is the address, HOST:PORT; StoreDir the folder of JetStream.
	Account, Listen, StoreDir string
	// Monitor is the address of the monitoring port, HOST:PORT; empty is none.
	Monitor string
	TLS     TLS
	// Callout is the public key whose answers say who somebody is that shows a proof of a login, where one of the users is asked for that.
	Callout string
	// Hash returns the password of a user, whose bcrypt hash is written. Nil writes the name of an environment variable
	// in its place, which the server reads when it loads the file.
	Hash func(variable string) (password string, err error)
}

// TLS are paths of PEM files; without Cert connections are not encrypted. With CA, clients must show a certificate of it.
type TLS struct{ Cert, Key, CA string }

// PasswordVariable is the environment variable with a user's password.
func PasswordVariable(user string) string {
	return "AGENTD_" + strings.ToUpper(strings.ReplaceAll(user, "-", "_")) + "_PASSWORD"
}

// Write writes the configuration of a server with the users. No password is in it.
func Write(w io.Writer, s Server, users []User) error {
	secrets, err := secrets(s, users)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Made by: agentd nats-config. Make it anew when agents, contracts or people change.\n")
	if s.Hash == nil {
		fmt.Fprintf(&b, "# The server reads the passwords from its environment; they must be words that begin with a letter.\n")
	}
	fmt.Fprintf(&b, "listen: %q\n", s.Listen)
	if s.Monitor != "" {
		fmt.Fprintf(&b, "http: %q\n", s.Monitor)
	}
	fmt.Fprintf(&b, "jetstream {\n  store_dir: %q\n  sync_interval: always\n}\n", s.StoreDir)
	if s.TLS.Cert != "" {
		fmt.Fprintf(&b, "tls {\n  cert_file: %q\n  key_file: %q\n", s.TLS.Cert, s.TLS.Key)
		if s.TLS.CA != "" {
			fmt.Fprintf(&b, "  ca_file: %q\n  verify: true\n", s.TLS.CA)
		}
		b.WriteString("}\n")
	}
	for _, u := range users {
		if u.Asked {
			writeCallout(&b, AccountOf(s.Account, u.Name), s.Callout, u.Name)
		}
	}
	b.WriteString("accounts {\n")
	for _, a := range layOut(s.Account, users, secrets) {
		a.write(&b)
	}
	b.WriteString("}\n")
	_, err = io.WriteString(w, b.String())
	return err
}

// secrets are the users' passwords as they stand in the file.
func secrets(s Server, users []User) ([]string, error) {
	list := make([]string, len(users))
	seen := map[string]string{}
	for i, u := range users {
		if broker.IsNKey(u.Name) {
			continue // the server asks for a signature
		}
		variable := PasswordVariable(u.Name)
		if other, ok := seen[variable]; ok {
			return nil, sdk.Errorf(sdk.CodeConfig, "users %s and %s would have their passwords in one variable, %s; rename one", other, u.Name, variable)
		}
		seen[variable] = u.Name
		list[i] = "$" + variable
		if s.Hash == nil {
			continue
		}
		password, err := s.Hash(variable)
		if err != nil {
			return nil, err
		}
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
		if err != nil {
			return nil, sdk.Errorf(sdk.CodeConfig, "the password of %s (%s) cannot be used: %s", u.Name, variable, err)
		}
		list[i] = strconv.Quote(string(hash))
	}
	return list, nil
}

// writeCallout has the server ask about those alone whom it does not know: users in this file log in as without it.
func writeCallout(b *strings.Builder, account, key, user string) {
	fmt.Fprintf(b, "authorization {\n  auth_callout {\n    issuer: %q\n    account: %q\n    auth_users: [%q]\n    allowed_accounts: [%q]\n  }\n}\n",
		key, account, user, account)
}

func writeUser(b *strings.Builder, u *User, secret string) {
	name := fmt.Sprintf("user: %q, password: %s", u.Name, secret)
	if broker.IsNKey(u.Name) {
		name = fmt.Sprintf("nkey: %q", u.Name)
	}
	fmt.Fprintf(b, "      # %s: %s\n      {\n        %s\n        permissions {\n", u.Role, u.About, name)
	b.WriteString("          publish {\n")
	writeList(b, "allow", u.Publish)
	if len(u.Deny) > 0 {
		writeList(b, "deny", u.Deny)
	}
	b.WriteString("          }\n          subscribe {\n")
	writeList(b, "allow", u.Subscribe)
	b.WriteString("          }\n")
	if u.Asked {
		b.WriteString("          allow_responses: true\n")
	}
	b.WriteString("        }\n      }\n")
}

func writeList(b *strings.Builder, name string, subjects []string) {
	fmt.Fprintf(b, "            %s: [\n", name)
	for _, s := range unique(subjects) {
		fmt.Fprintf(b, "              %q\n", s)
	}
	b.WriteString("            ]\n")
}

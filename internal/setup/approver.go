package setup

import (
	"cmp"
	"crypto/ed25519"
	"os"
	"os/user"
	"strings"

	"agentd/internal/broker"
	"agentd/internal/config"
	"agentd/internal/signature"
	"agentd/sdk/wire"
)

// Approver is who decisions are published as, and how that is known.
type Approver struct {
	// who is empty for nobody in particular.
	Who string
	// from says where the name is from, for people.
	from string
}

func (p Approver) String() string {
	if p.Who == "" {
		return "anonymous (name yourself with --as)"
	}
	return p.Who + " (" + p.from + ")"
}

// FindApprover finds out who decides: as said, else as NATS knows them, else the operating system's user on the server of a
// running agentd dev, where nothing else is known and nothing enforces it.
func FindApprover(cfg *config.Config, flag string) (Approver, error) {
	if flag != "" {
		return Approver{flag, "--as"}, wire.CheckPrincipal(flag)
	}
	if cfg.Approvals.As != "" {
		return Approver{cfg.Approvals.As, "approvals.as in " + cfg.File}, nil
	}
	name, err := broker.UserName(cfg.NATS.URL.Reveal(), Login(cfg))
	if err != nil {
		return Approver{}, err
	}
	switch {
	case name != "" && wire.CheckPrincipal(name) == nil && cfg.NATS.Creds != "":
		return Approver{name, "the user of " + cfg.NATS.Creds}, nil
	case name != "" && wire.CheckPrincipal(name) == nil && cfg.NATS.NKey != "":
		return Approver{name, "the public key of " + cfg.NATS.NKey}, nil
	case name != "" && wire.CheckPrincipal(name) == nil:
		return Approver{name, "the NATS user"}, nil
	case cfg.NATS.URL != "":
		return Approver{}, nil
	}
	return Approver{SystemUser(), "the operating system's user; agentd dev takes anybody's word for it"}, nil
}

// SystemUser is the operating system's user as a subject token; empty when there is none.
func SystemUser() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	name = name[strings.LastIndexByte(name, '\\')+1:] // Windows puts the domain before it
	return wire.PrincipalToken(name)
}

// SigningKey is what decisions are signed with: with the key of the flag, else of the configuration; nil signs none.
func SigningKey(cfg *config.Config, flag string) (ed25519.PrivateKey, error) {
	path := cmp.Or(flag, cfg.Approvals.Key)
	if path == "" {
		return nil, nil
	}
	return signature.ReadKey(path)
}

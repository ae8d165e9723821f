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

// Principal is who a program starts runs, answers and decides as, and how that is known.
type Principal struct {
	// Who is empty for nobody in particular.
	Who string
	// from says where the name is from, for people.
	from string
}

func (p Principal) String() string {
	if p.Who == "" {
		return "anonymous (name yourself with --as)"
	}
	return p.Who + " (" + p.from + ")"
}

// FindPrincipal finds out who somebody is: as said, else as NATS knows them, else the operating system's user on the server of
// a running agentd dev, where nothing else is known and nothing enforces it.
func FindPrincipal(cfg *config.Config, flag string) (Principal, error) {
	if flag != "" {
		return Principal{flag, "--as"}, wire.CheckPrincipal(flag)
	}
	name, err := broker.UserName(cfg.NATS.URL.Reveal(), Login(cfg))
	if err != nil {
		return Principal{}, err
	}
	switch err = wire.CheckPrincipal(name); {
	case err != nil && cfg.Identity:
		return Principal{}, err
	case err != nil:
		return Principal{}, nil //nolint:nilerr // the server may let it publish as nobody
	case name != "" && cfg.NATS.Creds != "":
		return Principal{name, "the user of " + cfg.NATS.Creds}, nil
	case name != "" && cfg.NATS.NKey != "":
		return Principal{name, "the public key of " + cfg.NATS.NKey}, nil
	case name != "":
		return Principal{name, "the NATS user"}, nil
	case !onDev(cfg):
		return Principal{}, nil
	}
	return Principal{SystemUser(), "the operating system's user; agentd dev takes anybody's word for it"}, nil
}

// FindApprover is FindPrincipal for who decides, whom the configuration may name.
func FindApprover(cfg *config.Config, flag string) (Principal, error) {
	if flag == "" && cfg.Approvals.As != "" {
		return Principal{cfg.Approvals.As, "approvals.as in " + cfg.File}, nil
	}
	return FindPrincipal(cfg, flag)
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

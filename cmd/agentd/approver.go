package main

import (
	"cmp"
	"os"
	"os/user"
	"regexp"
	"strings"

	"agentd/internal/approval"
	"agentd/internal/broker"
	"agentd/internal/config"
	"agentd/internal/desk"
)

// approver is who decisions are published as, and how that is known.
type approver struct {
	// who is empty for nobody in particular.
	who string
	// from says where the name is from, for people.
	from string
}

func (p approver) String() string {
	if p.who == "" {
		return "anonymous (name yourself with --as)"
	}
	return p.who + " (" + p.from + ")"
}

// approver finds out who decides: as said, else as NATS knows them, else the operating system's user on the server of a
// running agentd dev, where nothing else is known and nothing enforces it.
func (a *app) approver(cfg *config.Config, flag string) (approver, error) {
	if flag != "" {
		return approver{flag, "--as"}, desk.CheckPrincipal(flag)
	}
	if cfg.Approvals.As != "" {
		return approver{cfg.Approvals.As, "approvals.as in " + cfg.File}, nil
	}
	name, err := broker.UserName(cfg.NATS.URL.Reveal(), login(cfg))
	if err != nil {
		return approver{}, err
	}
	switch {
	case name != "" && desk.CheckPrincipal(name) == nil && cfg.NATS.Creds != "":
		return approver{name, "the user of " + cfg.NATS.Creds}, nil
	case name != "" && desk.CheckPrincipal(name) == nil && cfg.NATS.NKey != "":
		return approver{name, "the public key of " + cfg.NATS.NKey}, nil
	case name != "" && desk.CheckPrincipal(name) == nil:
		return approver{name, "the NATS user"}, nil
	case cfg.NATS.URL != "":
		return approver{}, nil
	}
	return approver{systemUser(), "the operating system's user; agentd dev takes anybody's word for it"}, nil
}

var noToken = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// systemUser is the operating system's user as a subject token; empty when there is none.
func systemUser() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	name = name[strings.LastIndexByte(name, '\\')+1:] // Windows puts the domain before it
	return noToken.ReplaceAllString(name, "_")
}

// signer is who signs decisions: with the key of the flag, else of the configuration; nil signs none.
func signer(cfg *config.Config, flag string) (*approval.Signer, error) {
	path := cmp.Or(flag, cfg.Approvals.Key)
	if path == "" {
		return nil, nil
	}
	return approval.ReadSigner(path)
}

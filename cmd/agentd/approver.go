package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/user"
	"regexp"
	"strings"

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
	if cfg.NATS.Creds != "" {
		name, err := credsName(cfg.NATS.Creds)
		if err != nil {
			return approver{}, err
		}
		if name != "" && desk.CheckPrincipal(name) == nil {
			return approver{name, "the user of " + cfg.NATS.Creds}, nil
		}
	}
	if text := cfg.NATS.URL.Reveal(); text != "" {
		server, err := url.Parse(strings.Split(text, ",")[0])
		if err == nil && server.User != nil && desk.CheckPrincipal(server.User.Username()) == nil {
			return approver{server.User.Username(), "the NATS user"}, nil
		}
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

// credsName is the name of the user in a NATS credentials file. The broker checks it; here it only says who one is.
func credsName(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read credentials: %w", err)
	}
	_, token, _ := strings.Cut(string(data), "-----BEGIN NATS USER JWT-----")
	token, _, _ = strings.Cut(token, "------END NATS USER JWT------")
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return "", nil // another form of credentials, which names nobody
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", fmt.Errorf("read credentials %s: %w", path, err)
	}
	var user struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(claims, &user); err != nil {
		return "", fmt.Errorf("read credentials %s: %w", path, err)
	}
	return user.Name, nil
}

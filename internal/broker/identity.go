package broker

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"agentd/internal/address"
	"agentd/sdk/wire"
)

// UserName is the name of the user that a program connects as: that of the credentials file, else the public key of its nkey,
// else the user of the first URL. It is empty when neither names one; a token in a URL is a secret and no name. The broker checks the name; here it
// only says who one is.
func UserName(urls string, login Login) (string, error) {
	switch {
	case login.Creds != "":
		return credsName(login.Creds)
	case login.NKey != "":
		return nkeyName(login.NKey)
	}
	servers := address.Servers(urls)
	if len(servers) == 0 {
		return "", nil
	}
	server, err := address.Parse(servers[0])
	if err != nil {
		return "", nil //nolint:nilerr // connecting says what is wrong with the URL, without its password
	}
	if _, ok := server.User.Password(); !ok {
		return "", nil
	}
	return server.User.Username(), nil
}

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

// InboxPrefix is where a user gets replies and messages: apart from all other users, so that permissions can keep them
// from reading each other's. A program that connects without a name shares the prefix of all such programs.
func InboxPrefix(s wire.Subjects, user string) string {
	prefix := "_INBOX_" + s.Root()
	if user == "" {
		return prefix
	}
	return prefix + "_" + wire.PrincipalToken(user)
}

// Package address says of the addresses of servers, which may hold passwords, tokens and keys, what may be shown.
package address

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// scheme begins an address that says its protocol.
var scheme = regexp.MustCompile(`(?:^|[,\s])[A-Za-z][A-Za-z0-9+.-]*://`)

// Hide returns an address, or several with commas between them, without who one is and the password. A password that is not written as it
// should be has any character, a comma too: all is hidden between the scheme, or the start, and the last "@" before the next scheme. So of
// several addresses with logins and without schemes the last host alone is left.
func Hide(list string) string {
	var b strings.Builder
	from := 0
	for _, at := range append(scheme.FindAllStringIndex(list, -1), []int{len(list), len(list)}) {
		shown := list[from:at[0]]
		if i := strings.LastIndexByte(shown, '@'); i >= 0 {
			shown = "***" + shown[i:]
		}
		b.WriteString(shown + list[at[0]:at[1]])
		from = at[1]
	}
	return b.String()
}

// Servers are the addresses of a list, as NATS clients read it.
func Servers(list string) []string {
	var servers []string
	for s := range strings.SplitSeq(list, ",") {
		if s = strings.TrimSpace(s); s != "" {
			servers = append(servers, s)
		}
	}
	return servers
}

// Parse reads the address of one NATS server, which needs no scheme. Its error repeats the address.
func Parse(server string) (*url.URL, error) {
	if !strings.Contains(server, "://") {
		server = "nats://" + server
	}
	return url.Parse(server)
}

// WithoutLogin is the address of one server for who logs in otherwise.
func WithoutLogin(server string) string {
	from := 0
	if i := strings.Index(server, "://"); i >= 0 {
		from = i + len("://")
	}
	return server[:from] + server[from+strings.LastIndexByte(server[from:], '@')+1:]
}

// Failure is why a request over HTTP failed, without its URL, which net/http repeats.
func Failure(err error) error {
	failed, ok := errors.AsType[*url.Error](err)
	if !ok {
		return err
	}
	if failed.Op == "parse" { // the cause quotes a part of the URL
		return errors.New("the URL cannot be read")
	}
	return failed.Err
}

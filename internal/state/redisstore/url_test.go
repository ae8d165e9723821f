package redisstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"agentd/sdk"
)

func TestParseURL_Understands(t *testing.T) {
	t.Parallel()
	type parsed struct {
		Network, Addr, User, Password          string
		DB                                     int
		TLS                                    bool
		Hosts                                  []string
		Master, SentinelUser, SentinelPassword string
	}
	for url, want := range map[string]parsed{
		"redis://localhost":                         {Network: "tcp", Addr: "localhost:6379"},
		"redis://ann:pa%40ss@h:1/2?read_timeout=3s": {Network: "tcp", Addr: "h:1", User: "ann", Password: "pa@ss", DB: 2},
		"rediss://h":                                {Network: "tcp", Addr: "h:6379", TLS: true},
		"redis://[::1]:7":                           {Network: "tcp", Addr: "[::1]:7"},
		"redis://[::1]":                             {Network: "tcp", Addr: "[::1]:6379"},
		"unix:///run/redis.sock?db=4":               {Network: "unix", Addr: "/run/redis.sock", DB: 4},
		"unix://ann:pass@/run/redis.sock":           {Network: "unix", Addr: "/run/redis.sock", User: "ann", Password: "pass"},
		"redis://:pass@a:1,b,[::1]:3": {
			Network: "tcp", Addr: "a:1", Password: "pass", Hosts: []string{"a:1", "b:6379", "[::1]:3"},
		},
		"rediss://a,b/0": {Network: "tcp", Addr: "a:6379", TLS: true, Hosts: []string{"a:6379", "b:6379"}},
		"redis+sentinel://ann:p@a,b:1/main?db=2&sentinel_username=w&sentinel_password=x": {
			Network: "tcp", Addr: "a:26379", User: "ann", Password: "p", DB: 2,
			Hosts: []string{"a:26379", "b:1"}, Master: "main", SentinelUser: "w", SentinelPassword: "x",
		},
		"rediss+sentinel://a/main": {Network: "tcp", Addr: "a:26379", TLS: true, Hosts: []string{"a:26379"}, Master: "main"},
	} {
		a, err := parseURL(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		o := a.options
		got := parsed{
			o.Network, o.Addr, o.Username, o.Password, o.DB, o.TLSConfig != nil,
			a.hosts, a.master, a.sentinelUser, a.sentinelPassword,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", url, diff)
		}
	}
}

// Nothing that the newer protocol has is used, and looking for it costs every command. Whoever asks for it has it.
func TestClient_SpeaksTheOlderProtocol(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]int{"redis://h": 2, "redis://h?protocol=3": 3} {
		a, err := parseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		client := a.client(Options{}).(*redis.Client)
		if got := client.Options().Protocol; got != want {
			t.Errorf("%s: protocol %d, want %d", url, got, want)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestParseURL_RefusesWithoutShowingPasswords(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"":                                  "no scheme",
		"localhost:6379":                    "no scheme",
		"http://secret@h":                   "unknown scheme",
		"mongo+sentinel://h/main":           "unknown scheme",
		"redis://u:secret@a,b/1":            "only database 0",
		"redis://u:secret@h/x":              "database number",
		"redis://u:secret@h?unknown=1":      "unknown",
		"redis://u:sec%ret@h":               "invalid",
		"redis+sentinel://u:secret@h":       "/master",
		"redis+sentinel://u:secret@h/a/b":   "/master",
		"redis+sentinel://u:sec%ret@h/a":    "invalid",
		"redis+sentinel://u:secret@h/a?x=1": "unexpected option",
	} {
		_, err := parseURL(url)
		if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sec%ret") {
			t.Errorf("%s: the error shows a password: %v", url, err)
		}
	}
}

func TestOpen_ReportsAllOfItsArguments(t *testing.T) {
	t.Parallel()
	_, _, err := Open(t.Context(), "localhost", Options{Root: "a{b}"})
	if err == nil || !strings.Contains(err.Error(), "no scheme") || !strings.Contains(err.Error(), "root") {
		t.Errorf("open: %v", err)
	}
}

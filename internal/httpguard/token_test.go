package httpguard_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentd/internal/httpguard"
	"agentd/sdk"
)

func TestCheckToken_RefusesOneThatCouldBeGuessed(t *testing.T) {
	t.Parallel()
	err := httpguard.CheckToken("AGENTD_MCP_TOKEN", strings.Repeat("é", 15))
	want := "AGENTD_MCP_TOKEN has a token of 15 characters, which could be guessed: want at least 16; make one with: agentd keys new"
	if e := sdk.AsError(err); err == nil || e.Code != sdk.CodeConfig || e.Message != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := httpguard.CheckToken("AGENTD_MCP_TOKEN", strings.Repeat("x", 16)); err != nil {
		t.Error(err)
	}
}

func TestSame(t *testing.T) {
	t.Parallel()
	if !httpguard.Same("ab", "ab") || httpguard.Same("ab", "abc") || httpguard.Same("ab", "ac") {
		t.Error("want what is equal, and nothing else")
	}
}

func bearing(header string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/v1/requests", http.NoBody)
	r.RemoteAddr = "192.0.2.7:1"
	if header != "" {
		r.Header.Set("Authorization", header)
	}
	return r
}

func TestGuesses_WaitAndAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		g := httpguard.NewGuesses(slog.New(slog.NewTextHandler(&log, nil)))
		for header, want := range map[string]struct {
			in   bool
			took time.Duration
		}{"": {}, "Basic right": {}, "Bearer right": {in: true}, "Bearer wrong": {took: time.Second}, "Bearer ": {took: time.Second}} {
			began := time.Now()
			in, err := g.Bears(bearing(header), "right")
			if took := time.Since(began); in != want.in || err != nil || took != want.took {
				t.Errorf("%q: in is %t after %s, %v; want %+v", header, in, took, err, want)
			}
		}
		if got := log.String(); strings.Count(got, "a wrong token was sent") != 2 || !strings.Contains(got, "192.0.2.7") || strings.Contains(got, "wrong\n") {
			t.Errorf("the log is %q", got)
		}
		if in, _ := g.Bears(bearing("Bearer "), ""); in {
			t.Error("no token lets somebody in")
		}
	})
}

// While as many wrong ones wait as may, not even the right one is looked at; and then it is again.
func TestGuesses_AtTheSameTimeAreSlowToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := httpguard.NewGuesses(slog.New(slog.DiscardHandler))
		for range 64 {
			go func() { _, _ = g.Bears(bearing("Bearer wrong"), "right") }() // it is not let in, which another test says
		}
		synctest.Wait()
		in, err := g.Bears(bearing("Bearer right"), "right")
		if in || !errors.Is(err, &sdk.Error{Code: sdk.CodeRateLimited}) {
			t.Errorf("in is %t, %v", in, err)
		}
		time.Sleep(time.Second) // of the test's own clock
		synctest.Wait()
		if in, err := g.Bears(bearing("Bearer right"), "right"); !in || err != nil {
			t.Errorf("in is %t, %v", in, err)
		}
	})
}

// Who hangs up as soon as the right token would have been answered guesses no faster.
func TestGuesses_OfWhoLeavesAreSlowToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := httpguard.NewGuesses(slog.New(slog.DiscardHandler))
		gone, leave := context.WithCancel(t.Context())
		leave()
		for range 64 {
			if in, err := g.Bears(bearing("Bearer wrong").WithContext(gone), "right"); in || err != nil {
				t.Errorf("in is %t, %v", in, err)
			}
		}
		if in, err := g.Bears(bearing("Bearer right"), "right"); in || !errors.Is(err, &sdk.Error{Code: sdk.CodeRateLimited}) {
			t.Errorf("in is %t, %v", in, err)
		}
		time.Sleep(time.Second) // of the test's own clock
		synctest.Wait()
		if in, err := g.Bears(bearing("Bearer right"), "right"); !in || err != nil {
			t.Errorf("in is %t, %v", in, err)
		}
	})
}

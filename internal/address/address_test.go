package address_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"

	"agentd/internal/address"
)

func TestHide_HidesWhoOneIsHoweverItIsWritten(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ list, want string }{
		{"", ""},
		{"nats://a:4222", "nats://a:4222"},
		{"a:4222, b:4222", "a:4222, b:4222"},
		{"redis://r:6379/0", "redis://r:6379/0"},
		{"nats://op:secret@a:4222", "nats://***@a:4222"},
		{"nats://token@a", "nats://***@a"},
		{"op:secret@127.0.0.1:4222", "***@127.0.0.1:4222"},
		{"token@a", "***@a"},
		{"nats://op:se,cret@a", "nats://***@a"},
		{"nats://op:se cret@a", "nats://***@a"},
		{"op:se,cr et@a", "***@a"},
		{"nats://op:s/e@c@a", "nats://***@a"},
		{"nats://op:secret@a,nats://op:secret@b", "nats://***@a,nats://***@b"},
		{"nats://op:secret@a,nats://b", "nats://***@a,nats://b"},
		{"nats://a, tls://op:secret@b:1 nats://@c", "nats://a, tls://***@b:1 nats://***@c"},
		{"op:secret@a,nats://op:secret@b", "***@a,nats://***@b"},
		{"op:secret@a,op:secret@b", "***@b"},
		{"http://u:secret@a:8222 http://b:8222", "http://***@a:8222 http://b:8222"},
	} {
		if got := address.Hide(tt.list); got != tt.want {
			t.Errorf("Hide(%q)\n got %q\nwant %q", tt.list, got, tt.want)
		}
	}
}

func TestServers_AreReadAsClientsReadThem(t *testing.T) {
	t.Parallel()
	want := []string{"nats://op:secret@a", "op:secret@b:1"}
	if got := address.Servers(" nats://op:secret@a,, op:secret@b:1 ,"); !slices.Equal(got, want) {
		t.Errorf("servers %q, want %q", got, want)
	}
	for server, want := range map[string]string{
		"nats://op:secret@a:4222": "nats://a:4222", "op:secret@a:4222": "a:4222", "tls://token@a": "tls://a", "a:4222": "a:4222",
		"nats://op:s@cret@a": "nats://a", "nats://a:4222": "nats://a:4222",
	} {
		if got := address.WithoutLogin(server); got != want {
			t.Errorf("WithoutLogin(%q) is %q, want %q", server, got, want)
		}
	}
	for _, server := range []string{"nats://op:secret@a:4222", "op:secret@a:4222"} {
		u, err := address.Parse(server)
		if err != nil || u.Host != "a:4222" || u.User.Username() != "op" {
			t.Errorf("Parse(%q) is %v, %v", server, u, err)
		}
	}
}

func TestFailure_DoesNotRepeatTheURL(t *testing.T) {
	t.Parallel()
	failed := &url.Error{Op: "Post", URL: "https://user:secret@models.example:8443/v1/secret?key=secret", Err: context.DeadlineExceeded}
	for _, err := range []error{failed, fmt.Errorf("send: %w", failed)} {
		got := address.Failure(err)
		if want := "context deadline exceeded"; got.Error() != want {
			t.Errorf("%q, want %q", got, want)
		}
		if !errors.Is(got, context.DeadlineExceeded) {
			t.Error("the cause is lost")
		}
	}
	unread := &url.Error{Op: "parse", URL: "http://user:se/cret@models.example/", Err: errors.New(`invalid port ":se" after host`)}
	if got := address.Failure(unread); got.Error() != "the URL cannot be read" {
		t.Errorf("%q", got)
	}
	if other := errors.New("another"); !errors.Is(address.Failure(other), other) {
		t.Error("another error is changed")
	}
}

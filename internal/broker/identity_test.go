package broker

import (
	"testing"

	"agentd/sdk/wire"
)

func TestUserName_IsThatOfTheFirstServer(t *testing.T) {
	t.Parallel()
	for urls, want := range map[string]string{
		"": "", "nats://a:4222": "", "a:4222": "", "nats://token@a": "", "token@a": "",
		"nats://op:secret@a": "op", "op:secret@a:4222": "op", " op:secret@a,nats://ann:secret@b": "op", ",nats://ann:secret@b": "ann",
	} {
		if got, err := UserName(urls, Login{}); err != nil || got != want {
			t.Errorf("the user of %q is %q, %v; want %q", urls, got, err, want)
		}
	}
}

// A server takes the login of a URL before a token: with a proof no URL has any.
func TestConnectOptions_AProofIsShownAlone(t *testing.T) {
	t.Parallel()
	for urls, want := range map[string]string{
		"nats://op:secret@a:4222":                    "nats://a:4222",
		"op:secret@a:4222":                           "a:4222",
		"op:secret@a:4222, op:secret@b, tls://tok@c": "a:4222,b,tls://c",
	} {
		o := ConnectOptions{URL: urls, Proof: "proof", Who: "ann", Subjects: wire.DefaultSubjects()}
		got, options, err := o.shown()
		if err != nil || got != want || len(options) != 1 {
			t.Errorf("for %q the server is shown %q with %d options, %v; want %q with the proof alone", urls, got, len(options), err, want)
		}
	}
}

package httpguard

import "testing"

func TestListen_NeedsATokenOffLoopback(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "example.com:80", "no port"} {
		if l, err := Listen(t.Context(), address, ""); err == nil {
			l.Close()
			t.Errorf("%q is served without a token", address)
		}
	}
	for address, token := range map[string]string{"127.0.0.1:0": "", "localhost:0": "", "0.0.0.0:0": "secret"} {
		l, err := Listen(t.Context(), address, token)
		if err != nil {
			t.Errorf("%q with token %q: %v", address, token, err)
			continue
		}
		l.Close()
	}
}

package httpguard

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"agentd/sdk"
)

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

func TestOpen_SaysWhatToDo(t *testing.T) {
	l, err := Open(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	_, err = Open(t.Context(), taken)
	if p, ok := errors.AsType[*sdk.Error](err); !ok || p.Code != sdk.CodeConfig || !errors.Is(err, syscall.EADDRINUSE) ||
		!strings.HasPrefix(p.Message, taken+" is in use; stop what listens there, or choose another") {
		t.Errorf("an address that is taken: %v", err)
	}
	_, err = Open(t.Context(), "192.0.2.1:80") // of documentation, so no machine has it
	if p, ok := errors.AsType[*sdk.Error](err); !ok || p.Code != sdk.CodeConfig || !strings.Contains(p.Message, "choose an address of this machine") {
		t.Errorf("an address of another machine: %v", err)
	}
}

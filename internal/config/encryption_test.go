package config

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentd/internal/strict"
)

func TestLoad_Encryption(t *testing.T) {
	t.Parallel()
	path := write(t, map[string]string{"agentd.yaml": `encryption:
  current: k2
  allow_plaintext: true
  keys:
    k1: {env: AGENTD_KEY_K1}
    k2: {file: secrets/k2}
`, "secrets/k2": "c2VjcmV0\n"})
	c := mustLoad(t, path)
	want := Encryption{Current: "k2", AllowPlaintext: true, Keys: []EncryptionKey{
		{ID: "k1", Env: "AGENTD_KEY_K1"}, {ID: "k2", File: filepath.Join(filepath.Dir(path), "secrets/k2")},
	}}
	if diff := cmp.Diff(want, c.Encryption, cmpopts.IgnoreTypes(strict.Position{})); diff != "" {
		t.Errorf("encryption (-want +got):\n%s", diff)
	}
	none := func(string) (string, bool) { return "", false }
	if _, err := c.Encryption.Keys[0].Read(none); !errors.Is(err, ErrKeyAbsent) || !strings.Contains(err.Error(), "AGENTD_KEY_K1") {
		t.Errorf("a variable that is not set: %v", err)
	}
	set := func(name string) (string, bool) { return " " + name + "\n", true }
	if key, err := c.Encryption.Keys[0].Read(set); err != nil || key.Reveal() != "AGENTD_KEY_K1" {
		t.Errorf("key of a variable: %q, %v", key.Reveal(), err)
	}
	if key, err := c.Encryption.Keys[1].Read(none); err != nil || key.Reveal() != "c2VjcmV0" {
		t.Errorf("key of a file: %q, %v", key.Reveal(), err)
	}
	gone := EncryptionKey{ID: "k3", File: filepath.Join(t.TempDir(), "k3")}
	if _, err := gone.Read(none); !errors.Is(err, ErrKeyAbsent) || !strings.Contains(err.Error(), gone.File) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := (EncryptionKey{ID: "k3", File: t.TempDir()}).Read(none); err == nil || errors.Is(err, ErrKeyAbsent) {
		t.Errorf("a folder as a file: %v", err)
	}
	if c := mustLoad(t, write(t, map[string]string{"agentd.yaml": "slots: 1\n"})); c.Encryption.Current != "" {
		t.Error("encryption is on without being configured")
	}
}

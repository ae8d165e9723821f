package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"agentd/internal/config"
	"agentd/internal/state/sealed"
	"agentd/sdk/worker"
)

func (a *app) keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make keys that encrypt the store of runs",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "new",
		Short: "Print a new key",
		Long: "new prints a random key of 32 bytes in base64. Keep it where secrets are kept: in an environment variable or a\n" +
			"file that encryption.keys in agentd.yaml names. Runs that are sealed with a key are lost with it.",
		Example: "  agentd keys new > k1.key\n  export AGENTD_KEY_K1=$(agentd keys new)",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			key := sealed.NewKey()
			return a.print(map[string]string{"key": key}, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, key)
				return err
			})
		},
	})
	return cmd
}

// encryption reads the configured keys. The error has every fault.
func encryption(cfg *config.Config) (worker.Encryption, error) {
	e := worker.Encryption{
		Current: cfg.Encryption.Current, AllowPlaintext: cfg.Encryption.AllowPlaintext, Keys: map[string][]byte{},
	}
	var faults config.Faults
	for _, k := range cfg.Encryption.Keys {
		key, err := readKey(k)
		if err != nil {
			faults = append(faults, k.Fault(err))
			continue
		}
		e.Keys[k.ID] = key
	}
	if len(faults) > 0 {
		return worker.Encryption{}, faults
	}
	return e, nil
}

func readKey(k config.EncryptionKey) ([]byte, error) {
	text, err := k.Read(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	return sealed.ParseKey(text.Reveal())
}

func encryptionText(e config.Encryption) string {
	if e.Current == "" {
		return "not encrypted"
	}
	return fmt.Sprintf("sealed with the key %q", e.Current)
}

// checkedEncryption is what check says about encryption.
type checkedEncryption struct {
	Current        string       `json:"current"`
	AllowPlaintext bool         `json:"allow_plaintext"`
	Keys           []checkedKey `json:"keys"`
}

// checkedKey is a key; Readable says that it is there, where check runs.
type checkedKey struct {
	ID       string `json:"id"`
	Source   string `json:"source"`
	Readable bool   `json:"readable"`
}

// addEncryption reads the keys. One that is not there is no fault: secrets need not be where a configuration is checked.
func (r *checked) addEncryption(e config.Encryption) {
	if e.Current == "" {
		return
	}
	r.Encryption = &checkedEncryption{Current: e.Current, AllowPlaintext: e.AllowPlaintext}
	for _, k := range e.Keys {
		_, err := readKey(k)
		if err != nil && !errors.Is(err, config.ErrKeyAbsent) {
			f := k.Fault(err)
			r.Faults = append(r.Faults, configFault{f.File, f.Line, f.Column, f.Message})
		}
		r.Encryption.Keys = append(r.Encryption.Keys, checkedKey{k.ID, k.Source(), err == nil})
	}
}

func (e *checkedEncryption) write(w io.Writer) {
	if e == nil {
		return
	}
	fmt.Fprintf(w, "encryption: new entries are sealed with the key %q\n", e.Current)
	if e.AllowPlaintext {
		fmt.Fprintln(w, "encryption: what is in plaintext is read too")
	}
	for _, k := range e.Keys {
		state := "is there"
		if !k.Readable {
			state = "is not there, where this command runs"
		}
		fmt.Fprintf(w, "encryption: key %q %s (%s)\n", k.ID, state, k.Source)
	}
}

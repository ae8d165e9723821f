package setup

import (
	"fmt"
	"os"

	"agentd/internal/config"
	"agentd/internal/state/sealed"
)

// Encryption reads the configured keys. The error has every fault.
func Encryption(cfg *config.Config) (sealed.Options, error) {
	e := sealed.Options{
		Current: cfg.Encryption.Current, AllowPlaintext: cfg.Encryption.AllowPlaintext, Keys: map[string][]byte{},
	}
	var faults config.Faults
	for _, k := range cfg.Encryption.Keys {
		key, err := ReadKey(k)
		if err != nil {
			faults = append(faults, k.Fault(err))
			continue
		}
		e.Keys[k.ID] = key
	}
	if len(faults) > 0 {
		return sealed.Options{}, faults
	}
	return e, nil
}

// ReadKey reads one key from where the configuration says that it is.
func ReadKey(k config.EncryptionKey) ([]byte, error) {
	text, err := k.Read(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	return sealed.ParseKey(text.Reveal())
}

// EncryptionText says for people how the store is sealed.
func EncryptionText(e config.Encryption) string {
	if e.Current == "" {
		return "not encrypted"
	}
	return fmt.Sprintf("sealed with the key %q", e.Current)
}

package broker

import (
	"fmt"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// Login is how a program shows a server who it is, beside what is in the URL, and how it knows the server. All are paths of
// files; empty ones are not used.
type Login struct {
	// Creds is a credentials file. NKey is a file with the seed of an nkey: its public key is the user's name.
	Creds, NKey string
	// CA has the certificates of the authorities that a server's must be of, in place of the system's; Cert and Key are the
	// program's own certificate. All are PEM.
	CA, Cert, Key string
}

// LoginFromEnvironment is NATS_CREDS, NATS_NKEY, NATS_CA, NATS_CERT and NATS_KEY.
func LoginFromEnvironment() Login {
	return Login{
		Creds: os.Getenv("NATS_CREDS"), NKey: os.Getenv("NATS_NKEY"), CA: os.Getenv("NATS_CA"), Cert: os.Getenv("NATS_CERT"),
		Key: os.Getenv("NATS_KEY"),
	}
}

func (l Login) options() ([]nats.Option, error) {
	var options []nats.Option
	if l.Creds != "" {
		options = append(options, nats.UserCredentials(l.Creds))
	}
	if l.NKey != "" {
		option, err := nats.NkeyOptionFromSeed(l.NKey)
		if err != nil {
			return nil, fmt.Errorf("read nkey %s: %w", l.NKey, err)
		}
		options = append(options, option)
	}
	if l.CA != "" {
		options = append(options, nats.RootCAs(l.CA))
	}
	if l.Cert != "" || l.Key != "" {
		options = append(options, nats.ClientCert(l.Cert, l.Key))
	}
	return options, nil
}

// IsNKey reports whether the name of a user is the public key of an nkey, by which the server knows it.
func IsNKey(name string) bool { return nkeys.IsValidPublicUserKey(name) }

// nkeyName is the public key of the nkey whose seed is in a file.
func nkeyName(path string) (string, error) {
	seed, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read nkey: %w", err)
	}
	pair, err := nkeys.ParseDecoratedNKey(seed)
	if err != nil {
		return "", fmt.Errorf("read nkey %s: %w", path, err)
	}
	defer pair.Wipe()
	return pair.PublicKey()
}

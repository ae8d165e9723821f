package redisstore

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"agentd/sdk"
)

// TLS are paths of PEM files: CA has the authorities that the server's certificate must be of, in place of the system's; Cert
// and Key are the program's own certificate. Empty ones are not used.
type TLS struct{ CA, Cert, Key string }

// secure applies files to connections by TLS. All that is wrong with them is reported.
func (a *address) secure(files TLS) error {
	if files == (TLS{}) {
		return nil
	}
	if a.options.TLSConfig == nil {
		return configError("certificates need TLS; want rediss://, or leave out REDIS_CA, REDIS_CERT and REDIS_KEY")
	}
	var faults []sdk.Fault
	fault := func(path, expected string, err error) {
		faults = append(faults, sdk.Fault{Path: path, Expected: expected, Got: err.Error()})
	}
	if files.CA != "" {
		if roots, err := authorities(files.CA); err != nil {
			fault("REDIS_CA", "a PEM file of certificates", err)
		} else {
			a.options.TLSConfig.RootCAs = roots
		}
	}
	if files.Cert != "" || files.Key != "" {
		if own, err := tls.LoadX509KeyPair(files.Cert, files.Key); err != nil {
			fault("REDIS_CERT, REDIS_KEY", "PEM files of a certificate and its key", err)
		} else {
			a.options.TLSConfig.Certificates = []tls.Certificate{own}
		}
	}
	if faults == nil {
		return nil
	}
	return &sdk.Error{Code: sdk.CodeConfig, Message: "certificates for Redis cannot be used", Faults: faults}
}

func authorities(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", path)
	}
	return pool, nil
}

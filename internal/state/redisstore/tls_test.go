package redisstore

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"agentd/internal/state/redistest"
	"agentd/sdk"
)

// secured puts TLS with client certificates in front of a server. The files are its certificate, which is its own authority, and
// the certificate's key.
func secured(t *testing.T, server string) (addr string, files TLS) {
	t.Helper()
	from := httptest.NewTLSServer(nil) // it brings a certificate
	from.Close()
	own := from.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	save := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	files = TLS{CA: save("cert.pem", "CERTIFICATE", own.Certificate[0]), Key: save("key.pem", "PRIVATE KEY", key)}
	files.Cert = files.CA
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { forward(c, server) })
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		running.Wait()
	})
	return l.Addr().String(), files
}

// forward connects two ends until one of them closes.
func forward(client net.Conn, server string) {
	s, err := net.Dial("tcp", server)
	if err != nil {
		_ = client.Close() // the client sees it
		return
	}
	end := sync.OnceFunc(func() { _, _ = client.Close(), s.Close() }) // what they had is copied, or nobody reads it
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, s}, {s, client}} {
		both.Go(func() {
			defer end()
			_, _ = io.Copy(way[0], way[1]) // ends with either connection
		})
	}
	both.Wait()
}

func TestOpen_KnowsServersAndShowsItselfByCertificates(t *testing.T) {
	t.Parallel()
	addr, files := secured(t, redistest.StartServer(t).Addr())
	s, _, err := Open(t.Context(), "rediss://"+addr, Options{TLS: files})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for name, without := range map[string]TLS{
		"an unknown authority": {Cert: files.Cert, Key: files.Key}, "no certificate": {CA: files.CA},
	} {
		if s, _, err := Open(t.Context(), "rediss://"+addr, Options{TLS: without}); !errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
			t.Errorf("with %s: store %v, error %v", name, s, err)
		}
	}
}

func TestOpen_RefusesCertificatesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(key, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		url  string
		tls  TLS
		says []string
	}{
		"without TLS": {"redis://127.0.0.1:1", TLS{CA: key}, []string{"rediss://"}},
		"both wrong":  {"rediss://127.0.0.1:1", TLS{CA: key, Cert: "nowhere.pem", Key: key}, []string{"REDIS_CA", "no certificate", "REDIS_CERT", "nowhere.pem"}},
	} {
		_, _, err := Open(t.Context(), c.url, Options{TLS: c.tls})
		for _, text := range c.says {
			if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v does not say %q", name, err, text)
			}
		}
	}
}

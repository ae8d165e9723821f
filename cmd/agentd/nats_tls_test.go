package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
	"go.uber.org/goleak"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/accounts"
	"agentd/internal/llm/mockllm"
)

// authority makes certificates for a test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue writes NAME.pem and NAME-key.pem. The first is the authority's own.
func (a *authority) issue(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(int64(len(name))), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	write(a.t, a.path(name), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(a.t, a.path(name+"-key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	made, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return made, key
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name+".pem") }

// nkey makes a user's key, and returns its name and the file with its seed.
func nkey(t *testing.T) (name, file string) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	if name, err = pair.PublicKey(); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "user.nk")
	write(t, file, string(seed))
	return name, file
}

// A server that asks for certificates, and knows its approver and its operator by nkeys: their public keys are who they are.
func TestNATSConfig_TLSAndNKeys(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	config, script := clerkProject(t, "identity: required\n")
	conversations, err := mockllm.LoadScript(script)
	if err != nil {
		t.Fatal(err)
	}
	model := httptest.NewServer(mockllm.New(conversations))
	t.Cleanup(model.Close)
	ca := newAuthority(t)
	ca.issue("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	ca.issue("program", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	jane, janes := nkey(t)
	operator, operators := nkey(t)
	_, strangers := nkey(t)
	for name, value := range map[string]string{
		"OPENAI_API_KEY": "", "OPENAI_BASE_URL": model.URL + "/v1", "NATS_URL": "", "NATS_CREDS": "", "REDIS_URL": "", "AGENTD_DATA": "", "AGENTD_STORE": "",
		"NATS_CA": ca.path("ca"), "NATS_CERT": ca.path("program"), "NATS_KEY": ca.path("program-key"), "NATS_NKEY": "",
	} {
		t.Setenv(name, value)
	}
	for _, user := range []string{"worker", "shop", "svc_local_bank_pay"} {
		t.Setenv(accounts.PasswordVariable(user), "secret-of-"+user)
	}
	g := &guarded{system: &system{t: t, config: config, data: t.TempDir()}, violations: &serverLog{}}
	out, _ := g.expect(cli.ExitOK, "nats-config", "--client", "shop", "--approver", jane, "--operator", operator, "--listen", "127.0.0.1:-1",
		"--store-dir", filepath.Join(filepath.Dir(config), "jetstream"),
		"--tls-cert", ca.path("server"), "--tls-key", ca.path("server-key"), "--tls-ca", ca.path("ca"))
	contains(t, out, `nkey: "`+jane+`"`, "verify: true")
	g.start(out, 1)
	_, g.address, _ = strings.Cut("//"+g.address, "//")
	g.address = g.address[strings.LastIndexByte(g.address, '/')+1:]
	url := "tls://" + g.address

	t.Setenv("NATS_NKEY", operators)
	g.expect(cli.ExitOK, "provision", "--nats", url)
	t.Setenv("NATS_NKEY", "")
	user := func(name string) string { return "tls://" + name + ":secret-of-" + name + "@" + g.address }
	g.background(&g.out, &g.errors, "serve", "--nats", user("worker"))
	g.until(&g.errors, "serving")
	g.expect(cli.ExitOK, "run", "clerk", "-m", "Pay", "--subject", "one", "-d", "--nats", user("shop"))

	t.Setenv("NATS_NKEY", janes)
	var id string
	g.holds("the request", func() bool {
		list, _ := g.expect(cli.ExitOK, "approvals", "list", "--nats", url)
		for line := range strings.Lines(list) {
			if strings.Contains(line, " pay ") {
				id, _, _ = strings.Cut(line, " ")
			}
		}
		return id != ""
	})
	_, said := g.expect(cli.ExitOK, "approvals", "approve", id, "--nats", url)
	contains(t, said, "as "+jane+" (the public key of "+janes+")")
	t.Setenv("NATS_NKEY", operators)
	log, _ := g.expect(cli.ExitOK, "approvals", "log", "one", "--nats", url)
	contains(t, log, jane+": allow call")

	for name, c := range map[string]struct{ variable, value, problem string }{
		"an authority that did not sign the server's": {"NATS_CA", ca.path("program"), "certificate signed by unknown authority"},
		"no such nkey":      {"NATS_NKEY", "none.nk", "read nkey"},
		"a stranger's nkey": {"NATS_NKEY", strangers, "no connection to NATS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(c.variable, c.value)
			_, problem := g.expect(cli.ExitFailure, "runs", "list", "--nats", url)
			contains(t, problem, c.problem)
		})
	}
}

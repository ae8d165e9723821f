package mcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"agentd/sdk"
)

// maxMessage is the most bytes of one message or response of a server: far more than a result that a run takes, and not so
// many that a server could fill a worker's memory.
const maxMessage = 16 << 20

// httpClient is for one remote server: every address that it dials is checked, at the time it is dialled, so that a name
// which meanwhile means another address does not help. Redirects are not followed: they would carry headers elsewhere.
func (p *Policy) httpClient(host string) *http.Client {
	local := slices.Contains(p.LocalHosts, host)
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		return checkAddress(address, local)
	}}
	transport := &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 8, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	}
	return &http.Client{
		Transport:     &bounded{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func checkAddress(address string, local bool) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %s: %w", address, err)
	}
	ip := at.Addr().Unmap()
	if local || ip.IsGlobalUnicast() && !ip.IsPrivate() && !carrierGrade.Contains(ip) {
		return nil
	}
	return sdk.Errorf(sdk.CodePermissionDenied, "the address %s is not public; mcp.local_hosts lists hosts that may have such", ip)
}

// carrierGrade is the range of providers' own networks (RFC 6598), which netip does not count as private.
var carrierGrade = netip.MustParsePrefix("100.64.0.0/10")

// bounded refuses responses that are larger than maxMessage.
type bounded struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = &limitedBody{resp.Body, maxMessage}
	return resp, nil
}

type limitedBody struct {
	io.ReadCloser
	left int
}

var errFlood = errors.New("the server sent more than is taken of one response")

func (l *limitedBody) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errFlood
	}
	n, err := l.ReadCloser.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

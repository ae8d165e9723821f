package mcp

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"agentd/internal/httplimit"
	"agentd/sdk"
)

// maxMessage is the most bytes of one message or response of a server: the largest result that a run takes, twice, because servers
// send texts as structured content too, and escaped; and not so many that a server could fill a worker's memory.
const maxMessage = 40 << 20

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
		Transport: &httplimit.Transport{Base: transport, Limits: func(*http.Request) httplimit.Limits {
			return httplimit.Limits{Total: maxMessage}
		}},
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

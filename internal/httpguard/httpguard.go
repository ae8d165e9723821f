// Package httpguard tells requests that a browser sends for a page of another site from those of programs: a server on this machine
// is reached by every page that its user opens.
package httpguard

import (
	"net"
	"net/http"
	"net/url"
	"strings"
)

// Local reports whether a Host header names this machine.
func Local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Foreign reports whether a browser sends the request for a page of another site.
func Foreign(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host != r.Host
}

package console

import (
	"net/http"
	"regexp"
	"strings"

	"agentd/sdk"
)

var basePattern = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$`)

// CheckBase reads a path that a console is to be under; empty, or "/", is none.
func CheckBase(path string) (base string, err error) {
	base = strings.TrimSuffix(path, "/")
	if base != "" && !basePattern.MatchString(base) {
		return "", sdk.Errorf(sdk.CodeConfig, "a console cannot be under the path %q; write one such as /agentd, of letters, digits, -, _, ~ and dots", path)
	}
	return base, nil
}

// under serves a console under a path: it knows nothing of that, other than to write it into pages and cookies.
func under(base string, console http.Handler) http.Handler {
	if base == "" {
		return console
	}
	stripped := http.StripPrefix(base, console)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == base:
			http.Redirect(w, r, base+"/", http.StatusMovedPermanently)
		case strings.HasPrefix(r.URL.Path, base+"/"):
			stripped.ServeHTTP(&redirecting{ResponseWriter: w, base: base}, r)
		default:
			http.NotFound(w, r)
		}
	})
}

// redirecting adds the path to where an answer leads to on this host.
type redirecting struct {
	http.ResponseWriter
	base string
}

// WriteHeader implements http.ResponseWriter.
func (w *redirecting) WriteHeader(status int) {
	if to := w.Header().Get("Location"); strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") {
		w.Header().Set("Location", w.base+to)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController flush what is sent, and bound how long that takes.
func (w *redirecting) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// cookiePrefix is that of the names of cookies. A cookie with __Host- is set by this host alone, and over TLS or on this machine; it is sent
// to all of the host, so that under a path only the latter can be had.
func cookiePrefix(base string) string {
	if base == "" {
		return "__Host-"
	}
	return "__Secure-"
}

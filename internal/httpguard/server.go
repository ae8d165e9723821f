package httpguard

import (
	"net/http"
	"time"
)

// What a request may take, so that no client that sends or reads slowly keeps a connection.
const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 16 << 10
)

// Server answers requests, of which each has to be there, whole, within bodyTimeout. answering is how long reading the request and
// writing the answer may take together; 0 is as long as the handler does.
func Server(h http.Handler, answering time.Duration) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, WriteTimeout: answering, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader,
	}
}

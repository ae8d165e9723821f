package httpguard

import (
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"agentd/sdk"
)

// leastToken is how many characters a token has at least: those that agentd keys new makes have 44.
const leastToken = 16

// CheckToken refuses a token that could be guessed. of is where it comes from.
func CheckToken(of, token string) error {
	if n := utf8.RuneCountInString(token); n < leastToken {
		return sdk.Errorf(sdk.CodeConfig, "%s has a token of %d characters, which could be guessed: want at least %d; make one with: agentd keys new", of, n, leastToken)
	}
	return nil
}

// Same compares hashes, so that the time it takes says nothing of either, not even of its length.
func Same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// guessPause is how long a wrong token waits for its answer, and mostGuesses how many of them may wait at once.
const (
	guessPause  = time.Second
	mostGuesses = 64
)

// Guesses slow down who guesses the token of a server: a wrong one is logged, and answered after a pause. While too many wait for that no
// token is looked at, or guesses at the same time would not be slow. Whoever leaves before the answer has guessed as well: that none has come
// says that the token is wrong.
type Guesses struct {
	logger  *slog.Logger
	waiting chan struct{}
}

// NewGuesses are those of one server.
func NewGuesses(logger *slog.Logger) *Guesses {
	return &Guesses{logger, make(chan struct{}, mostGuesses)}
}

// Bears reports whether a request has that token, as "Authorization: Bearer <token>". The error is CodeRateLimited.
func (g *Guesses) Bears(r *http.Request, token string) (bool, error) {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return false, nil
	}
	return g.Right(r, given, token)
}

// Right reports whether what came with a request is the token, which must not be empty. The error is CodeRateLimited.
func (g *Guesses) Right(r *http.Request, given, token string) (bool, error) {
	select {
	case g.waiting <- struct{}{}:
	default:
		return false, sdk.Errorf(sdk.CodeRateLimited, "too many wrong tokens were sent; try again in a second")
	}
	if token != "" && Same(given, token) {
		<-g.waiting
		return true, nil
	}
	g.logger.Warn("a wrong token was sent", "from", r.RemoteAddr, "path", r.URL.Path)
	answered := make(chan struct{})
	time.AfterFunc(guessPause, func() {
		<-g.waiting
		close(answered)
	})
	select {
	case <-answered:
	case <-r.Context().Done():
	}
	return false, nil
}

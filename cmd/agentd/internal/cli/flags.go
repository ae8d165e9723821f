package cli

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"agentd/internal/strict"
)

// Narrow makes flags refuse an empty value. What they leave out would be in again where the variable of a script is not set.
func Narrow(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		f := flags.Lookup(name)
		f.Value = narrow{f.Value}
	}
}

var errEmpty = errors.New("it is empty; leave the flag out if everything is meant")

type narrow struct{ pflag.Value }

func (n narrow) Set(text string) error {
	if strings.TrimSpace(text) == "" {
		return errEmpty
	}
	return n.Value.Set(text)
}

// SinceTime is the beginning of the time that --since names; zero without one.
func SinceTime(since string) (time.Time, error) {
	if since == "" {
		return time.Time{}, nil
	}
	d, err := strict.ParseDuration(since)
	if err != nil {
		return time.Time{}, Usagef("--since: %w", err)
	}
	return time.Now().Add(-d), nil
}

package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"agentd/internal/strict"
)

// Narrow makes flags refuse an empty value. What they leave out would be in again where the variable of a script is not set.
func Narrow(flags *pflag.FlagSet, names ...string) {
	fill(flags, errWide, names)
}

// Filled makes flags refuse an empty value that would be taken for one where the variable of a script is not set.
func Filled(flags *pflag.FlagSet, names ...string) {
	fill(flags, errEmpty, names)
}

func fill(flags *pflag.FlagSet, empty error, names []string) {
	for _, name := range names {
		f := flags.Lookup(name)
		if f.Value = (filled{f.Value, empty}); f.DefValue == "[]" { // help would take it for a default of a type that it does not know
			f.DefValue = ""
		}
	}
}

var (
	errEmpty = errors.New("it is empty")
	errWide  = fmt.Errorf("%w; leave the flag out if everything is meant", errEmpty)
)

// filled is a flag that refuses an empty value with an error.
type filled struct {
	pflag.Value
	empty error
}

func (f filled) Set(text string) error {
	if strings.TrimSpace(text) == "" {
		return f.empty
	}
	return f.Value.Set(text)
}

// DurationVar adds a flag that takes a duration in the form of agentd.yaml, such as 30s or 2d, or 0.
func DurationVar(flags *pflag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	flags.Var((*duration)(d), name, usage)
}

type duration time.Duration

// String implements pflag.Value; help takes 0 for no default.
func (d *duration) String() string {
	if *d == 0 {
		return "0"
	}
	return time.Duration(*d).String()
}

// Type implements pflag.Value.
func (*duration) Type() string { return "duration" }

// Set implements pflag.Value.
func (d *duration) Set(text string) error {
	if zero, err := time.ParseDuration(text); err == nil && zero == 0 {
		*d = 0
		return nil
	}
	parsed, err := strict.ParseDuration(text)
	if err == nil {
		*d = duration(parsed)
	}
	return err
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

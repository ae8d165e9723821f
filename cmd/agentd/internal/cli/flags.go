package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"agentd/internal/strict"
)

// Narrow has flags that leave something out say so when they are empty: it would be in again.
func Narrow(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		f := flags.Lookup(name)
		f.Value = filled{f.Value, errWide}
	}
}

// texts are the types of flags that would take an empty text.
var texts = []string{"string", "stringArray", "stringSlice", "stringToString"}

// fill has the flags of a command, and of those below it, refuse an empty text, which is what the variable of a script is that is not set: it
// would be taken for a flag that was not given.
func fill(cmd *cobra.Command) {
	one := func(f *pflag.Flag) {
		if _, is := f.Value.(filled); !is && slices.Contains(texts, f.Value.Type()) {
			f.Value = filled{f.Value, errEmpty}
		}
		if f.DefValue == "[]" { // help would take it for a default of a type that it does not know
			f.DefValue = ""
		}
	}
	cmd.Flags().VisitAll(one)
	cmd.PersistentFlags().VisitAll(one)
	for _, child := range cmd.Commands() {
		fill(child)
	}
}

// filledArgs is what checks arguments, and refuses empty ones for the same reason, but for those of another program, which is what follows -- in
// the form of some commands.
func filledArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check != nil {
			if err := check(cmd, args); err != nil {
				return err
			}
		}
		if dash := cmd.ArgsLenAtDash(); dash >= 0 && strings.Contains(cmd.Use, " -- ") {
			args = args[:dash]
		}
		for n, arg := range args {
			if strings.TrimSpace(arg) == "" {
				return fmt.Errorf("argument %d is empty; %s", n+1, wantedForm(cmd))
			}
		}
		return nil
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

// CountVar adds a flag that takes a whole number from least on. value, its default, may be less: the command finds out what is meant then.
func CountVar(flags *pflag.FlagSet, n *int, name string, value, least int, usage string) {
	*n = value
	flags.Var(&count{n, least}, name, usage)
}

type count struct {
	n     *int
	least int
}

// String implements pflag.Value; help takes 0 for no default.
func (c *count) String() string { return strconv.Itoa(*c.n) }

// Type implements pflag.Value.
func (*count) Type() string { return "int" }

// Set implements pflag.Value.
func (c *count) Set(text string) error {
	n, err := strconv.ParseInt(text, 0, strconv.IntSize)
	if err != nil || n < int64(c.least) {
		return form(fmt.Sprintf("a whole number from %d", c.least))
	}
	*c.n = int(n)
	return nil
}

// form is what a flag takes, in words: the error about a value that is none.
type form string

func (f form) Error() string { return "want " + string(f) }

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

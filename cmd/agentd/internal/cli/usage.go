package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"agentd/internal/spelling"
)

// refusal is cobra's error, with what helps: the form of the command where its arguments are too few or too many, and the command
// that was meant.
func refusal(root *cobra.Command, args []string, err error) error {
	if len(args) > 1 && args[0] == helpCommand {
		args = args[1:]
	}
	cmd, rest, findErr := root.Find(args)
	err = inOwnWords(err)
	switch {
	case findErr == nil && strings.Contains(err.Error(), "arg(s)"):
		err = errors.New(wantedForm(cmd))
	case len(rest) > 0 && strings.HasPrefix(err.Error(), "unknown command"):
		var known []string
		for _, c := range cmd.Commands() {
			known = append(known, c.Name())
		}
		if meant := spelling.Closest(rest[0], known); meant != "" {
			err = fmt.Errorf("%w; did you mean %q?", err, cmd.CommandPath()+" "+meant)
		}
	}
	return fmt.Errorf("%w\nsee: %s --help", err, commandPath(root, args))
}

// helpCommand is the name of cobra's command that prints the help of another.
const helpCommand = "help"

// known takes arguments that name a command.
func known(root *cobra.Command) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		cmd, rest, err := root.Find(args)
		if err == nil && len(rest) > 0 {
			return fmt.Errorf("unknown command %q for %q", rest[0], cmd.CommandPath())
		}
		return err
	}
}

// wantedForm says how a command is written.
func wantedForm(cmd *cobra.Command) string {
	use, _, _ := strings.Cut(cmd.UseLine(), " [flags]")
	return "want: " + use
}

// commandPath is the command that args mean, such as "agentd runs show".
func commandPath(root *cobra.Command, args []string) string {
	if cmd, _, err := root.Find(args); err == nil {
		return cmd.CommandPath()
	}
	return root.CommandPath()
}

// wanted is what a flag of a type takes, in words.
var wanted = map[string]string{
	"int": "a whole number", "uint64": "a whole number from 0", "float64": "a number", "bool": "true or false",
	"duration": "a duration such as 30s, 15m or 2d", "stringToString": "KEY=VALUE",
}

// What cobra says of flags that go together. Its errors have no types.
var (
	allMissing = regexp.MustCompile(`^at least one of the flags in the group \[(.+)\] is required$`)
	tooMany    = regexp.MustCompile(`^if any flags in the group \[.+\] are set none of the others can be; \[(.+)\] were all set$`)
	required   = regexp.MustCompile(`^required flag\(s\) "(.+)" not set$`)
)

// inOwnWords says what is wrong with flags: pflag repeats what Go's parsers say, and cobra speaks of groups.
func inOwnWords(err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if cause := errors.Unwrap(invalid); errors.Is(cause, errEmpty) {
			return fmt.Errorf("--%s: %w", invalid.GetFlag().Name, cause)
		}
		want := wanted[invalid.GetFlag().Value.Type()]
		if own, ok := errors.AsType[form](invalid); ok {
			want = string(own)
		}
		if want != "" {
			return fmt.Errorf("--%s: want %s, got %q", invalid.GetFlag().Name, want, invalid.GetValue())
		}
		return err
	}
	text := err.Error()
	if m := allMissing.FindStringSubmatch(text); m != nil {
		return errors.New("want " + flagNames(strings.Fields(m[1]), " or "))
	}
	if m := tooMany.FindStringSubmatch(text); m != nil {
		return errors.New("want only one of " + flagNames(strings.Fields(m[1]), " and "))
	}
	if m := required.FindStringSubmatch(text); m != nil {
		return errors.New("want " + flagNames(strings.Split(m[1], `", "`), " and "))
	}
	return err
}

// flagNames are the names of flags as they are written.
func flagNames(names []string, between string) string {
	return "--" + strings.Join(names, between+"--")
}

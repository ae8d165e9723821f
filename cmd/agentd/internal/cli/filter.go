package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentd/internal/index"
	"agentd/internal/strict"
	"agentd/sdk/wire"
)

// RunFilter is what flags and arguments say of the runs that a command is about.
type RunFilter struct {
	Status, Agent, Reason, Since string
	Tags                         map[string]string
	Failed                       bool
}

// AddFlags adds the flags, which are short forms of conditions.
func (f *RunFilter) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Agent, "agent", "", "only runs of this agent (agent:)")
	cmd.Flags().StringVar(&f.Reason, "reason", "", "only runs that ended with this reason or code: error, model_failed (reason:, code:)")
	cmd.Flags().StringVar(&f.Since, "since", "", "only runs that changed in this time, such as 90m or 2d (changed>)")
	cmd.Flags().StringToStringVar(&f.Tags, "tag", nil, "only runs with this tag, as key=value (tag.KEY:)")
	cmd.Flags().BoolVar(&f.Failed, "failed", false, "only runs that ended otherwise than somebody wanted")
	cmd.MarkFlagsMutuallyExclusive("failed", "reason")
	Narrow(cmd.Flags(), "agent", "reason", "since", "tag")
}

// Given reports whether a flag was given.
func (f *RunFilter) Given() bool {
	return f.Status != "" || f.Agent != "" || f.Reason != "" || f.Since != "" || len(f.Tags) > 0 || f.Failed
}

// Filter has the conditions of the arguments and of the flags.
func (f *RunFilter) Filter(args []string) (index.Filter, error) {
	filter, err := index.ParseFilter(strings.Join(args, " "))
	if err != nil {
		return index.Filter{}, Usage(err)
	}
	is := func(key, value string) {
		if value != "" {
			filter.Terms = append(filter.Terms, index.Term{Key: key, With: index.Is, Value: value})
		}
	}
	is(index.KeyStatus, f.Status)
	is(index.KeyAgent, f.Agent)
	if slices.Contains(index.Reasons(), f.Reason) {
		is(index.KeyReason, f.Reason)
	} else {
		is(index.KeyCode, f.Reason)
	}
	for key, value := range f.Tags {
		if err := wire.CheckTagKey(key); err != nil {
			return index.Filter{}, Usage(err)
		}
		if value == "" {
			return index.Filter{}, Usagef(`--tag %s=: it has no value; for runs without the tag, give the filter '%s%s:""'`, key, index.TagPrefix, key)
		}
		is(index.TagPrefix+key, value)
	}
	if f.Failed {
		filter = filter.And(index.Failed())
	}
	if f.Since != "" {
		d, err := strict.ParseDuration(f.Since)
		if err != nil {
			return index.Filter{}, Usagef("--since: %w", err)
		}
		since, err := index.ParseFilter("changed>-" + d.String())
		if err != nil {
			return index.Filter{}, Usage(err)
		}
		filter = filter.And(since)
	}
	return filter, nil
}

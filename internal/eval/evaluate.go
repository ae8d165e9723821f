package eval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"agentd/sdk"
)

// Options say how often a model is asked, and how often it has to be right.
type Options struct {
	// Model is the vendor's name of it.
	Model string
	// Tries is how often each case is tried, from 1.
	Tries int
	// K is how many tries in a row are to be right in what PassK estimates, 1 to Tries.
	K int
	// Least is the PassK that a case must have, 0 to 1.
	Least float64
	// Parallel is how many tries are made at once, from 1.
	Parallel int
}

// Report is what came of suites.
type Report struct {
	Model  string        `json:"model"`
	Tries  int           `json:"tries"`
	K      int           `json:"k"`
	Least  float64       `json:"least"`
	Suites []SuiteReport `json:"suites"`
}

// SuiteReport is what came of a suite, with the means of its cases.
type SuiteReport struct {
	Name  string       `json:"name"`
	Pass1 float64      `json:"pass_1"`
	PassK float64      `json:"pass_k"`
	Cases []CaseReport `json:"cases"`
}

// CaseReport is what came of a case.
type CaseReport struct {
	Name string `json:"name"`
	// Right is how many of the tries were.
	Right int `json:"right"`
	// Pass1 estimates how likely one try is right, and PassK how likely K in a row are.
	Pass1 float64 `json:"pass_1"`
	PassK float64 `json:"pass_k"`
	// Passed says that PassK is enough.
	Passed bool `json:"passed"`
	// Faults are why tries were wrong, in their order; empty of one that was right.
	Faults []string `json:"faults"`
}

// Passed reports whether every case did.
func (r *Report) Passed() bool {
	return !slices.ContainsFunc(r.Suites, func(s SuiteReport) bool {
		return slices.ContainsFunc(s.Cases, func(c CaseReport) bool { return !c.Passed })
	})
}

// Evaluate tries every case. The error is that the model cannot be asked at all; a try in which it fails otherwise is wrong.
func Evaluate(ctx context.Context, model sdk.Provider, suites []Suite, o Options) (*Report, error) {
	report := &Report{Model: o.Model, Tries: o.Tries, K: o.K, Least: o.Least}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.Parallel)
	for i := range suites {
		s := &suites[i]
		report.Suites = append(report.Suites, SuiteReport{Name: s.Name})
		for j := range s.Cases {
			c := CaseReport{Name: s.Cases[j].Name, Faults: make([]string, o.Tries)}
			report.Suites[i].Cases = append(report.Suites[i].Cases, c)
			for n := range o.Tries {
				group.Go(func() (err error) {
					c.Faults[n], err = s.try(ctx, model, o.Model, &s.Cases[j], n+1)
					return err
				})
			}
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i := range report.Suites {
		report.Suites[i].grade(o)
	}
	return report, nil
}

func (s *SuiteReport) grade(o Options) {
	for i := range s.Cases {
		c := &s.Cases[i]
		for _, fault := range c.Faults {
			if fault == "" {
				c.Right++
			}
		}
		c.Pass1, c.PassK = passK(c.Right, o.Tries, 1), passK(c.Right, o.Tries, o.K)
		c.Passed = c.PassK >= o.Least
		s.Pass1 += c.Pass1
		s.PassK += c.PassK
	}
	s.Pass1 /= float64(len(s.Cases))
	s.PassK /= float64(len(s.Cases))
}

// passK is C(right,k)/C(tries,k): how many of the ways to take k of the tries take right ones alone.
func passK(right, tries, k int) float64 {
	p := 1.0
	for i := range k {
		p *= float64(max(right-i, 0)) / float64(tries-i)
	}
	return p
}

// try has the model do what a case wants, and says why that is wrong; empty is that it is right. No more calls are answered than are expected.
func (s *Suite) try(ctx context.Context, model sdk.Provider, name string, c *Case, n int) (fault string, err error) {
	system := c.System
	if system == "" {
		system = s.System
	}
	request := sdk.ModelRequest{
		Run: fmt.Sprintf("%s/%s#%d", s.Name, c.Name, n), Lifecycle: sdk.LifecycleUserMessage, Model: name, System: system,
		Messages: []sdk.Message{sdk.Text(sdk.RoleUser, c.Input)}, Tools: s.offered(c), Kind: sdk.TurnTools,
		Interactions: sdk.Interactions{Max: len(c.Expect.Calls) + 1},
	}
	left := c.Expect.Calls
	for {
		reply, err := model.Generate(ctx, request, func(sdk.Delta) {})
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}):
			return "", fmt.Errorf("ask model %s: %w", name, err)
		case err != nil:
			return "the model fails: " + sdk.AsError(err).Message, nil
		case reply.Fault != nil:
			return "writes what cannot be read: " + reply.Fault.Message, nil
		case len(reply.Calls) == 0 && len(left) > 0:
			return fmt.Sprintf("answers before it calls %s", left[0].Tool), nil
		case len(reply.Calls) == 0 && c.Expect.Answer != nil:
			return c.Expect.Answer.fault(reply.Text), nil
		case len(reply.Calls) == 0:
			return "", nil
		}
		if left, fault = s.expected(left, reply.Calls); fault != "" || len(left) == 0 && c.Expect.Answer == nil {
			return fault, nil
		}
		request.Messages = append(request.Messages, c.exchange(len(request.Messages), &reply)...)
		request.Interactions.Current++
	}
}

// expected takes the calls of one reply, which were written at once and so in any order, from those that are left.
func (s *Suite) expected(left []ExpectedCall, calls []sdk.ToolRequest) ([]ExpectedCall, string) {
	if len(calls) > len(left) {
		return nil, fmt.Sprintf("calls %s, which is one call too many", calls[len(left)].Name)
	}
	due := slices.Clone(left[:len(calls)])
	for i := range calls {
		fits := slices.IndexFunc(due, func(c ExpectedCall) bool { return c.fault(s, &calls[i]) == "" })
		if fits < 0 {
			near := max(0, slices.IndexFunc(due, func(c ExpectedCall) bool { return c.Tool == calls[i].Name }))
			return nil, due[near].fault(s, &calls[i])
		}
		due = slices.Delete(due, fits, fits+1)
	}
	return left[len(calls):], ""
}

// exchange is a reply with calls, and what they return.
func (c *Case) exchange(place int, reply *sdk.ModelReply) []sdk.Message {
	said := sdk.Message{Role: sdk.RoleAssistant, Seen: 1, Content: slices.Clone(reply.Thinking)}
	if reply.Text != "" {
		said.Content = append(said.Content, sdk.Content{Kind: sdk.ContentText, Text: reply.Text})
	}
	returned := sdk.Message{Role: sdk.RoleUser}
	for i, call := range reply.Calls {
		id := fmt.Sprintf("call_%d_%d", place, i)
		result := c.Results[call.Name]
		if result == nil {
			result = json.RawMessage("{}")
		}
		said.Content = append(said.Content, sdk.Content{Kind: sdk.ContentToolUse, CallID: id, Tool: call.Name, Args: json.RawMessage(call.Arguments)})
		returned.Content = append(returned.Content, sdk.Content{Kind: sdk.ContentToolResult, CallID: id, Tool: call.Name, Text: string(result)})
	}
	return []sdk.Message{said, returned}
}

// offered are the tools of a case.
func (s *Suite) offered(c *Case) []sdk.ToolDefinition {
	var all []sdk.ToolDefinition
	for _, t := range s.Tools {
		if len(c.Tools) == 0 || slices.Contains(c.Tools, t.Name) {
			all = append(all, sdk.ToolDefinition{Name: t.Name, Description: t.Description, Parameters: t.Parameters})
		}
	}
	return all
}

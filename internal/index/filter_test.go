package index_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"agentd/internal/index"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const now = 1_790_000_000_000

func order7() *index.Document {
	return &index.Document{
		V: 1, Run: "order 7", Agent: "travel.desk", Rev: 3, Status: wire.StatusWaiting, Who: "anna", Started: now - 7_200_000, Changed: now - 600_000,
		Due: now + 60_000, Waits: []index.Wait{{Kind: "permission", Tool: "pay", ID: "c1"}, {Kind: "service", Tool: "hotel", ID: "c2"}},
		Turns: 3, Tokens: index.Tokens{In: 40, Out: 10}, Tags: map[string]string{"tenant": "acme", "order": "7"},
		Text: "Two weeks in Lisbon, then Porto.",
	}
}

func TestFilter_Matches(t *testing.T) {
	t.Parallel()
	for filter, want := range map[string]bool{
		"":                                true,
		"agent:travel.*":                  true,
		"agent:travel":                    false,
		"agent:other agent:travel.desk":   true,
		"agent:other status:waiting":      false,
		"status:waiting waits:permission": true,
		"waits:service tool:pay":          true,
		"waits:*":                         true,
		"-waits:turn":                     true,
		"-waits:permission":               false,
		"tag.tenant:acme":                 true,
		"tag.tenant:acme tag.order:8":     false,
		"tag.tenant:ac*":                  true,
		"-tag.region:*":                   true,
		"tag.region:*":                    false,
		`tag.region:""`:                   false,
		"who:anna":                        true,
		`who:""`:                          false,
		`parent:""`:                       true,
		"changed>-1h":                     true,
		"changed>-5m":                     false,
		"changed<-5m changed>-1h":         true,
		"due<+2m":                         true,
		"deadline<+2m":                    false,
		"started>2026-09-21 started<2026-09-22T00:00:00Z": true,
		"duration>1h":         true,
		"duration>3h":         false,
		"tokens>49":           true,
		"tokens>50":           false,
		"interactions<4":      true,
		"-reason:completed":   true,
		`reason:""`:           true,
		"lisbon":              true,
		"LISBON porto":        true,
		"lis":                 false,
		"lis*":                true,
		`"lisbon then porto"`: true,
		`"lisbon porto"`:      false,
		`"then por"*`:         true,
		`-"weeks in lisbon"`:  false,
		`"order 7"`:           true,
		`run:"order 7"`:       true,
		`run:"order "*`:       true,
	} {
		f, err := index.ParseFilter(filter)
		if err != nil {
			t.Errorf("%s: %v", filter, err)
			continue
		}
		if got := f.Matches(order7(), time.UnixMilli(now)); got != want {
			t.Errorf("%s: selected %v, want %v", filter, got, want)
		}
	}
}

func TestFilter_AsText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`  agent:travel.*   status:waiting waits:permission tag.tenant:acme who:anna changed>-1h -reason:completed "lisbon" `: `agent:travel.* status:waiting waits:permission tag.tenant:acme who:anna changed>-1h -reason:completed lisbon`,
		`who:"" run:"a b" run:"a*b" run:"say \"hi\"" run:"back\\slash"`:                                                       `who:"" run:"a b" run:"a*b" run:"say \"hi\"" run:"back\\slash"`,
		`"-1" "a:b" run:-1 "lis bon"*`: `"-1" "a:b" run:-1 "lis bon"*`,
		`run:a:b run:*`:                `run:a:b run:*`,
		"run:größe\u00a0who:anna":      "run:größe who:anna",
	} {
		f, err := index.ParseFilter(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := f.String(); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
		again, err := index.ParseFilter(f.String())
		if err != nil || again.String() != want {
			t.Errorf("%s read again: %s, %v", want, again, err)
		}
	}
}

func TestParseFilter_SaysAllThatIsWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"agnt:x":                  `filter, character 1: the key "agnt" is not known; did you mean "agent"?`,
		"status:done agent:":      `filter, character 19: agent: has no value; write agent:"" for runs without one`,
		"status:dne":              `filter, character 8: status is running, waiting, done, not "dne"`,
		"größe status>done":       `filter, character 7: status is compared with ":", not with ">"`,
		"changed:1h":              `filter, character 1: changed is compared with > or <, such as changed>-1h`,
		"changed>1h":              `filter, character 9: "1h" is not a time; write -1h (an hour ago), +30m, 2026-11-22 or 2026-11-22T10:00:00Z`,
		"changed>-1x":             `filter, character 9: "1x" is not a duration such as 30s, 15m, 72h or 30d`,
		"tokens>many":             `filter, character 8: "many" is not a whole number such as 1000`,
		"tokens>1*":               `filter, character 8: tokens takes a whole value, without "*"`,
		"duration>5":              `filter, character 10: "5" is not a duration such as 30s, 15m, 72h or 30d`,
		"tag.Tenant:acme":         `filter, character 1: the key of a tag is 1 to 32 of a-z, 0-9, _ . -, not "Tenant"`,
		"tag.tenant>acme":         `filter, character 1: tags are compared with ":", not with ">"`,
		`run:"a`:                  `filter, character 5: the closing " is missing`,
		`run:"a"b`:                `filter, character 8: leave a space after the value, or put all of it in quotes`,
		"run:a*b":                 `filter, character 6: "*" can stand only at the end of a value; put the value in quotes to look for the character`,
		"who:anna - status:done":  `filter, character 11: nothing follows "-"; write what is to be left out, such as -status:done`,
		"!!":                      `filter, character 1: write a word with letters or digits to look for, or a condition such as status:waiting`,
		":x":                      `filter, character 1: the key "" is not known; there is agent, changed, code, deadline, due, duration, interactions, parent, reason, run, spec, started, status, tag.NAME, tokens, tool, waits, who`,
		"agnt:x status:dne":       "filter, character 1: the key \"agnt\" is not known; did you mean \"agent\"?\nfilter, character 15: status is running, waiting, done, not \"dne\"",
		strings.Repeat("a ", 33):  "filter, character 65: more than 32 conditions; leave some out",
		strings.Repeat("a", 4097): "filter, character 1: the filter has 4097 bytes; 4096 are allowed",
	} {
		_, err := index.ParseFilter(text)
		if err == nil || err.Error() != want {
			t.Errorf("%.40s\n got %v\nwant %s", text, err, want)
		}
		if !errors.Is(err, &sdk.Error{Code: sdk.CodeInvalidEvent}) {
			t.Errorf("%.40s: want an error of %s", text, sdk.CodeInvalidEvent)
		}
	}
}

func FuzzParseFilter(f *testing.F) {
	f.Add(`agent:travel.* -reason:completed tag.a:"b c" changed>-1h "x y"*`)
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := index.ParseFilter(text)
		if err != nil {
			return
		}
		again, err := index.ParseFilter(filter.String())
		if err != nil && len(filter.String()) <= index.MaxFilter || err == nil && again.String() != filter.String() {
			t.Fatalf("%q became %q, which reads as %q, %v", text, filter, again, err)
		}
	})
}

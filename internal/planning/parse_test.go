package planning_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/planning"
	"agentd/sdk"
)

// kept are steps of an earlier plan: the second is done, the third has failed.
var kept = []core.PlanStep{
	{Number: 2, Status: core.StepDone, Text: "Look"},
	{Number: 3, Status: core.StepFailed, Text: "Book"},
}

// brief is a plan with each step in one line.
func brief(p planning.Plan) string {
	all := p.Answer
	for _, s := range p.Steps {
		all += fmt.Sprintf("%s|%s|%v\n", s.Text, s.Tool, s.After)
	}
	return all
}

// TestParse_ReadsWhatPlannersWrite: calls first, and else JSON, which is repaired.
func TestParse_ReadsWhatPlannersWrite(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ written, want string }{
		"calls": {
			`plan.add_step(step=1, tool="orders_find", text="Find the orders")` + "\n" + `plan.add_step(step=2, tool="mail_send", after=[1], text="Send them")`,
			"Find the orders|orders_find|[]\nSend them|mail_send|[5]\n",
		},
		"in brackets, in one line":     {`[plan.add_step(text="a"), plan.add_step(text="b", after=5)]`, "a||[]\nb||[5]\n"},
		"in a block, with words round": {"Sure.\n```python\nplan.add_step(text='a')\n```\nThat is all.", "a||[]\n"},
		"the names of other planners": {
			`plan.add_step(step_number=1, expected_server="shop", description="a") plan.add_step(number=2, server="mail", task="b", depends_on="1")`,
			"a|shop|[]\nb|mail|[5]\n",
		},
		"a text without a name":               {`plan.add_step("Find the hat") plan.add_step(step="Buy it")`, "Find the hat||[]\nBuy it||[]\n"},
		"either quotation mark in the other":  {`plan.add_step(text="Ada's \"hat\"") plan.add_step(text='say "no"')`, "Ada's \"hat\"||[]\nsay \"no\"||[]\n"},
		"brackets, commas and signs in texts": {`plan.add_step(text="f(x), [y] = {z}")`, "f(x), [y] = {z}||[]\n"},
		"colons in place of equal signs":      {`plan.add_step(step: 1, text: "a")`, "a||[]\n"},
		"lines and control characters":        {"plan.add_step(text=\"a\\nb\tc\x00d\")", "a b cd||[]\n"},
		"the last call is cut off":            {`plan.add_step(text="a") plan.add_step(text="b`, ""},
		"a step that the text names":          {`plan.add_step(step=1, text="a") plan.add_step(step=2, text="b") plan.add_step(step=3, text="Send steps 1 and 2")`, "a||[]\nb||[]\nSend steps 1 and 2||[5 6]\n"},
		"step 10 is not step 1":               {`plan.add_step(step=1, text="a") plan.add_step(step=10, text="b") plan.add_step(step=11, text="Send step 10")`, "a||[]\nb||[]\nSend step 10||[6]\n"},
		"a step 0, which is none":             {`plan.add_step(step=1, text="a") plan.add_step(step=2, text="Send step 0")`, "a||[]\nSend step 0||[]\n"},
		"numbers that the planner has chosen": {`plan.add_step(step=10, text="a") plan.add_step(step=20, after=[10], text="b")`, "a||[]\nb||[5]\n"},
		"a step of the plan before":           {`plan.add_step(step=5, after=[2], text="b")`, "b||[2]\n"},
		"a step that the text names in vain":  {`plan.add_step(step=5, text="Do step 3 again, and step 99")`, "Do step 3 again, and step 99||[]\n"},
		"calls before JSON":                   {`{"steps":[{"text":"json"}]} plan.add_step(text="call")`, "call||[]\n"},
		"another object's method":             {`myplan.add_step(text="no") {"steps":[{"text":"json"}]}`, "json||[]\n"},
		"JSON":                                {`{"steps":[{"step":1,"text":"a","tool":"x"},{"step":2,"text":"b","after":[1]}]}`, "a|x|[]\nb||[5]\n"},
		"JSON that is repaired":               {`Here: {'steps': [{"step_number": 1, "description": "a",}, {"step": "b", "depends_on": [1]},]`, "a||[]\nb||[5]\n"},
		"an answer":                           {`plan.respond(message="Hello.")`, "Hello."},
		"an answer in JSON":                   {`{"needs_tools": false, "direct_response": "Hello."}`, "Hello."},
		"steps before an answer":              {`plan.respond(message="Wait.") plan.add_step(text="a")`, "a||[]\n"},
	} {
		p, err := planning.Parse(test.written, kept, 5)
		if diff := cmp.Diff(test.want, brief(p)); diff != "" || (err != nil) != (test.want == "") {
			t.Errorf("%s: %v, -want +got:\n%s", name, err, diff)
		}
	}
}

// TestParse_SaysWhatIsWrong: the planner is told.
func TestParse_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	const unread = "no step of a plan could be read"
	for written, want := range map[string]string{
		"":                                     unread,
		"I would look for a hat.":              unread,
		"plan.done()":                          unread,
		`plan.respond(message="  ")`:           unread,
		`{"steps":{"text":"a"}}`:               unread,
		`{"steps":[]}`:                         unread,
		`plan.add_step(tool="x")`:              "step 1 says nothing",
		`plan.add_step(text="` + "\x01" + `")`: "step 1 says nothing",
		`plan.add_step(text="a", after=[0])`:   "step 1 comes after step 0, which is not before it",
		`plan.add_step(text="a", after=[1])`:   "step 1 comes after step 1, which is not before it",
		`plan.add_step(text="a") plan.add_step(text="b", after=[7])`: "step 2 comes after step 7, which is not before it",
		`plan.add_step(step=5, text="a", after=[3])`:                 "step 1 comes after step 3, which is not before it",
		`plan.add_step(text="` + strings.Repeat("a", 601) + `")`:     "step 1 has 601 bytes; at most 600 are allowed",
		strings.Repeat(`plan.add_step(text="a")`, 11):                "the plan has 11 steps; at most 10 are allowed",
		strings.Repeat("x", 64<<10) + `plan.add_step(text="a")`:      "the plan has 65559 bytes; at most 65536 are allowed",
	} {
		if p, err := planning.Parse(written, kept, 5); err == nil || err.Error() != want {
			t.Errorf("%.60q: %v and %q, want %q", written, err, brief(p), want)
		}
	}
}

// TestParse_TakesNoTimeForHostileTexts: the longest that are read, of what makes parsers slow.
func TestParse_TakesNoTimeForHostileTexts(t *testing.T) {
	t.Parallel()
	for _, part := range []string{
		`plan.add_step([`, `plan.add_step("`, `plan.add_step('\`, `plan.add_step(`, `plan.add_step(a=`, `plan.add_step(a=(`, `,`,
		`{"steps":[`, `{'`, `{"`, `{`, `{"a":`, `{"steps":[{"step":{`, `}`, `steps 1,1,`, `plan.`, "plan.respond\x01(",
	} {
		text := strings.Repeat(part, 64<<10/len(part))
		if p, err := planning.Parse(text, kept, 5); err == nil {
			t.Errorf("%q is the plan %q", part, brief(p))
		}
	}
}

// FuzzParse: whatever a planner writes, what is read of it can be a plan.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`plan.add_step(step=1, tool="a", after=[2], text="b")`, `plan.respond(message='a')`, `{"steps":[{"step":1,"text":"a","after":[2]}]}`,
		`plan.add_step(`, `plan.add_step("`, `plan.add_step([`, `plan.add_step(after=[`, `plan.add_step(text="\`, `plan.add_step(a=b=c)`, `plan.add_step(=)`,
		`plan.add_step(text="steps 1, 2 & 3 or 4444")`, `plan.add_step(step=99999999999999999999, text="a")`, `{"steps":[{"step":1e99}]}`, `{"steps":[{"after":[-1],"text":"a"}]}`,
		"plan.add_step(text=\"\xff\u202e\x00\")", strings.Repeat(`plan.add_step([`, 300), strings.Repeat(`{"steps":[`, 300), strings.Repeat("plan.respond(", 300),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := planning.Parse(text, kept, 5)
		switch {
		case err != nil:
			if !utf8.ValidString(err.Error()) {
				t.Fatalf("the fault is not text: %q", err)
			}
			return
		case len(p.Steps) == 0 && strings.TrimSpace(p.Answer) == "", len(p.Steps) > 0 && p.Answer != "", len(p.Steps) > core.MaxPlanSteps:
			t.Fatalf("%d steps and the answer %q", len(p.Steps), p.Answer)
		}
		for i, s := range p.Steps {
			for _, one := range []string{s.Text, s.Tool} {
				if !utf8.ValidString(one) || strings.ContainsFunc(one, unicode.IsControl) {
					t.Fatalf("step %d has %q", i, one)
				}
			}
			if s.Text == "" || len(s.Text) > core.MaxStepText {
				t.Fatalf("step %d has %d bytes", i, len(s.Text))
			}
			if !slices.IsSorted(s.After) || slices.ContainsFunc(s.After, func(n int) bool { return n != 2 && (n < 5 || n >= 5+i) }) {
				t.Fatalf("step %d comes after %v", i, s.After)
			}
		}
	})
}

// TestCompound_FindsRequestsForSeveralThings: one step is not enough for them.
func TestCompound_FindsRequestsForSeveralThings(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]bool{
		"Find the hat and then buy it":              true,
		"Read the letter; write an answer":          true,
		"Book a room as well as a car":              true,
		"Find a flight to Rome and book it":         true,
		"Look up order 7 and cancel it":             true,
		"Search the notes and summarise them":       true,
		"ALSO TELL ADA":                             true,
		"Find the hat":                              false,
		"Authenticate me":                           false,
		"What is the weather in Paris and in Rome?": false,
		"Send the letter to Ada":                    false,
		"Book the flight that leaves at nine;":      false,
		"":                                          false,
	} {
		if got := planning.Compound(request); got != want {
			t.Errorf("%q: %t", request, got)
		}
	}
}

// TestTemplate_TakesTheOneThatFitsBest: every group has to have a word in the request, as a word of its own.
func TestTemplate_TakesTheOneThatFitsBest(t *testing.T) {
	t.Parallel()
	steps := []sdk.TemplateStep{{Text: "Do it"}}
	templates := []sdk.PlanTemplate{
		{Name: "book", Keywords: [][]string{{"book", "reserve"}}, Steps: steps},
		{Name: "trip", Keywords: [][]string{{"book", "reserve"}, {"flight", "hotel room"}}, Steps: steps},
		{Name: "late", Keywords: [][]string{{"book"}, {"flight"}}, Steps: steps},
		{Name: "any", Steps: steps},
	}
	for request, want := range map[string]string{
		"Please book a table":           "book",
		"Reserve a HOTEL ROOM, please!": "trip",
		"(book) a flight.":              "trip",
		"Reserve the flights":           "book",
		"Buy a notebook for the flight": "",
		"":                              "",
	} {
		name := ""
		if found := planning.Template(templates, request); found != nil {
			name = found.Name
		}
		if name != want {
			t.Errorf("%q: %q, want %q", request, name, want)
		}
	}
	p, err := planning.FromTemplate(&sdk.PlanTemplate{Steps: []sdk.TemplateStep{{Text: "Look", Tool: "find"}, {Text: "Book", After: []int{1}}}}, 5)
	if diff := cmp.Diff("Look|find|[]\nBook||[5]\n", brief(p)); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	for what, t2 := range map[string]*sdk.PlanTemplate{
		"it has 0 steps; want 1 to 10":                      {},
		"it has 11 steps; want 1 to 10":                     {Steps: slices.Repeat(steps, 11)},
		"step 1 comes after step 2, which is not before it": {Steps: []sdk.TemplateStep{{Text: "a", After: []int{2}}, {Text: "b"}}},
	} {
		if _, err := planning.FromTemplate(t2, 1); err == nil || err.Error() != what {
			t.Errorf("%v, want %s", err, what)
		}
	}
}

// TestInText_IsTheCallOfTheOneToolThatIsNamed: none is guessed.
func TestInText_IsTheCallOfTheOneToolThatIsNamed(t *testing.T) {
	t.Parallel()
	tools := []sdk.ToolDefinition{{Name: "note"}, {Name: "note_all"}, {Name: "find"}}
	for text, want := range map[string]string{
		`Call note with text="two" and day='3'.`: `note {"day":"3","text":"two"}`,
		"I use note_all.":                        "note_all {}",
		"note or find":                           "",
		"footnote, notes":                        "",
		"":                                       "",
		// What is quoted is somebody else's word, and what is not to be done is not done.
		`plan.add_step(step="1", text="note everything")`: "",
		"I would not use note for this.":                  "",
		"I can't find it.":                                "",
		"Ich kann find hier nicht aufrufen.":              "",
		"Je ne peux pas utiliser note ici.":               "",
		// Arguments that cannot be read are not left out.
		"I think that note(n=3) is right.": "",
		"note: {n: 3}":                     "",
		`note(text="it's fine")`:           `note {"text":"it's fine"}`,
	} {
		got := ""
		if call := planning.InText(text, tools); call != nil {
			got = call.Name + " " + call.Arguments
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestHinted_IsTheToolOrItsServer: a hint is a whole name.
func TestHinted_IsTheToolOrItsServer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		hint, tool string
		want       bool
	}{
		{"mail_send", "mail_send", true},
		{"mail.send", "mail_send", true},
		{"mail", "mail_send", true},
		{"mai", "mail_send", false},
		{"mail_send", "mail", false},
		{"", "mail", false},
	} {
		if got := planning.Hinted(test.hint, test.tool); got != test.want {
			t.Errorf("%q for %q: %t", test.hint, test.tool, got)
		}
	}
}

// TestParse_ReadsConditionsAndLists: in CEL, over results by the numbers of the run. A step comes after those whose results they call.
func TestParse_ReadsConditionsAndLists(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ written, want, fault string }{
		"calls": {
			written: `plan.add_step(step=1, text="a") plan.add_step(step=2, each="step1.orders", text="b") plan.add_step(step=3, when="size(step1.orders) > 2 && step2[0].ok", text="c")`,
			want:    "a|||[]\nb||step5.orders|[5]\nc|size(step5.orders) > 2 && step6[0].ok||[5 6]\n",
		},
		"JSON":                       {written: `{"steps":[{"step":1,"text":"a"},{"text":"b","for_each":"step1","condition":"step1 != []"}]}`, want: "a|||[]\nb|step5 != []|step5|[5]\n"},
		"other words for a step":     {written: `plan.add_step(text="a") plan.add_step(text="b", each="Step 5.items", if="steps 5.n > 1")`, want: "a|||[]\nb|step5.n > 1|step5.items|[5]\n"},
		"the number of a step":       {written: `plan.add_step(step=1, text="a") plan.add_step(text="b", each=[1]) plan.add_step(text="c", over=1)`, want: "a|||[]\nb||step5|[5]\nc||step5|[5]\n"},
		"a list of texts":            {written: `plan.add_step(text="a", each=["Paris", "Rome"])`, want: `a||["Paris", "Rome"]|[]` + "\n"},
		"a result of a plan before":  {written: `plan.add_step(text="a", each="step2.list")`, want: "a||step2.list|[2]\n"},
		"a text that names a step":   {written: `plan.add_step(step=1, text="a") plan.add_step(text="b", when="step1.text != 'step 9' && step1.step2")`, want: "a|||[]\nb|step5.text != 'step 9' && step5.step2||[5]\n"},
		"a step that is not before":  {written: `plan.add_step(text="a", when="step9.ok")`, fault: "step 1: its condition cannot be: it calls step 9, which is not before it"},
		"a list that is not one":     {written: `plan.add_step(text="a", each="1 + 1")`, fault: `step 1: its list cannot be read: config: "1 + 1" yields int, want a list`},
		"a condition that is a list": {written: `plan.add_step(text="a", when="[1]")`, fault: `step 1: its condition cannot be read: config: "[1]" yields list(int), want true or false`},
		"words":                      {written: `plan.add_step(step=1, text="a") plan.add_step(text="b", each="the orders of step 1")`, fault: `step 2: its list cannot be read: config: "the orders of step5" is not a CEL expression: column 5: Syntax error: mismatched input 'orders' expecting <EOF>`},
		"too long a condition":       {written: `plan.add_step(text="a", when="` + strings.Repeat("1", 257) + ` == 1")`, fault: "step 1: its condition has 262 bytes; at most 256 are allowed"},
		"too long a list":            {written: `plan.add_step(text="a", each="[` + strings.Repeat("1", 127) + `]")`, fault: "step 1: its list has 129 bytes; at most 128 are allowed"},
	} {
		p, err := planning.Parse(test.written, kept, 5)
		got, fault := "", ""
		for _, s := range p.Steps {
			got += fmt.Sprintf("%s|%s|%s|%v\n", s.Text, s.When, s.Each, s.After)
		}
		if err != nil {
			fault = err.Error()
		}
		if diff := cmp.Diff(test.want+test.fault, got+fault); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// TestExpressions_OfResults: conditions and lists are evaluated over results; that nobody can is told.
func TestExpressions_OfResults(t *testing.T) {
	t.Parallel()
	results := map[int]json.RawMessage{
		1: json.RawMessage(`{"orders":[{"id":7},{"id":9007199254740991}],"total":12.5}`), 2: json.RawMessage(`"[\"a\",null,true]"`), 3: json.RawMessage(`not JSON`),
		4: json.RawMessage(`{"text":"{\"orders\": [{\"id\": 7}]}"}`), 5: json.RawMessage(`{"text":"[7]"}`), 6: json.RawMessage(`{"text":"[7","more":1}`),
	}
	for each, want := range map[string]string{
		"step1.orders":                         `{"id":7} {"id":9007199254740991}`,
		"step1":                                `{"id":7} {"id":9007199254740991}`,
		"step1.orders.filter(o, o.id == 7.0)":  `{"id":7}`,
		"step1.orders.map(o, {'order': o.id})": `{"order":7} {"order":9007199254740991}`,
		"step2":                                `"a" null true`,
		"step4.orders":                         `{"id":7}`,
		"step4":                                `{"id":7}`,
		"[step4.text]":                         `"{\"orders\": [{\"id\": 7}]}"`,
		"step5":                                `7`,
		"[step6.text]":                         `"[7"`,
		"[1, 'two']":                           `1 "two"`,
		"step1.total":                          `"step1.total" yields double, want a list`,
		"step1.lines":                          `evaluate "step1.lines": no such key: lines`,
		"step3":                                `"step3" yields string, want a list`,
		"step1.orders.map(o, step1.orders.map(p, step1.orders.map(q, [o, p, q])))": `[[[{"id":7},{"id":7},{"id":7}]`,
	} {
		elements, err := planning.Elements(&core.PlanStep{Each: each}, results, 96)
		var all []string
		for _, e := range elements {
			all = append(all, string(e))
		}
		if err != nil {
			all = append(all, strings.TrimPrefix(err.Error(), "tool_failed: "))
		}
		if got := strings.Join(all, " "); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", each, got, want)
		}
	}
	for when, want := range map[string]string{
		"": "true", "step1.total > 12.0": "true", "step1.total > 13": "false", "size(step1.orders) == 2": "true", "has(step1.none)": "false",
		"step1.none == 1": `evaluate "step1.none == 1": no such key: none`, "step1": `"step1" yields map, want true or false`,
	} {
		holds, err := planning.Holds(&core.PlanStep{When: when}, results)
		got := fmt.Sprint(holds)
		if err != nil {
			got = strings.TrimPrefix(err.Error(), "tool_failed: ")
		}
		if got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
}

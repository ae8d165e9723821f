package milestone_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/milestone"
)

// TestOf has an entry of each sort of thing that is told. The stories in internal/core/testdata show those of whole runs.
func TestOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entry string
		want  []string
	}{
		"a run begins": {
			`{"kind":"started","input":{"city":"Bern"},"checkpoints":["UserMessage"],
			  "messages":[{"role":"user","content":[{"kind":"text","text":"Bern"}]}],"head":{"status":"running"}}`,
			[]string{`run.started {"input":{"city":"Bern"}}`, `checkpoint {"checkpoints":["UserMessage"]}`},
		},
		"the model replies and calls": {
			`{"kind":"replied","messages":[{"role":"assistant","content":[
			  {"kind":"text","text":"Let me see."},{"kind":"tool_use","call":"c1","tool":"look","args":{"n":1}}]}],
			  "head":{"status":"waiting","interactions":1,"usage":{"prompt":20,"completion":5},
			  "calls":[{"id":"c1","kind":"service","status":"suspended"},{"id":"c2","kind":"inline","status":"succeeded"}]}}`,
			[]string{
				`model.reply {"text":"Let me see."}`, `call.opened {"args":{"n":1},"call":"c1","tool":"look"}`,
				`run.usage {"interactions":1,"total":{"prompt":20,"completion":5}}`, `run.suspended {"calls":1}`,
			},
		},
		"the agent talks to a person": {
			`{"kind":"replied","messages":[{"role":"assistant","content":[{"kind":"text","text":"Where to?"}]}],
			  "head":{"status":"waiting","interactions":1,"usage":{"prompt":0,"completion":0},
			  "calls":[{"id":"c1","kind":"turn","status":"suspended"}]}}`,
			[]string{
				`conversation.turn {"message":"Where to?"}`, `run.usage {"interactions":1,"total":{"prompt":0,"completion":0}}`,
				`run.suspended {"calls":1}`,
			},
		},
		"the person answers": {
			`{"kind":"answered","messages":[{"role":"user","content":[{"kind":"text","text":"Bern"}]}],"results":[{"call":"c1","event":"a1"}],
			  "head":{"status":"running"}}`,
			[]string{`conversation.answer {"call":"c1","event":"a1","message":"Bern"}`},
		},
		"a service answers, and the model is told of a decision and shown an image": {
			`{"kind":"answered","messages":[{"role":"user","content":[{"kind":"tool_result","call":"c1","tool":"draw"}]},
			  {"role":"user","content":[{"kind":"text","text":"draw returned:"},{"kind":"media","call":"c1"}]},
			  {"role":"user","content":[{"kind":"text","call":"p1","tool":"draw"}]}],"results":[{"call":"c1","kind":"answer","data":{},"event":"a1"}],
			  "head":{"status":"running"}}`,
			[]string{`call.result {"call":"c1","data":{},"error":false,"event":"a1","kind":"answer","tool":"draw"}`},
		},
		"a call is allowed with other arguments": {
			`{"kind":"answered","decisions":[{"request":"p1","call":"c1","decision":"allow","refused":"unsigned"},
			  {"request":"p1","call":"c1","decision":"allow","who":"ann"}],"edits":[{"call":"c1","args":{"n":2}}],"head":{"status":"running"}}`,
			[]string{
				`permission.decided {"decision":{"request":"p1","call":"c1","decision":"allow","refused":"unsigned"}}`,
				`permission.decided {"decision":{"request":"p1","call":"c1","decision":"allow","who":"ann"},"args":{"n":2}}`,
			},
		},
		"the person answers, and the model at once": {
			`{"absorbed":{"kind":"answered","messages":[{"role":"user","content":[{"kind":"text","text":"Bern"}]}],"results":[{"call":"c1"}],
			  "head":{"run":"trip 7","agent":"desk","status":"running","interactions":1}},
			  "kind":"replied","messages":[{"role":"assistant","content":[{"kind":"text","text":"Sunny."}]}],
			  "head":{"status":"waiting","interactions":1,"usage":{"prompt":0,"completion":0}}}`,
			[]string{
				`conversation.answer {"call":"c1","message":"Bern"}`, `model.reply {"text":"Sunny."}`,
				`run.usage {"interactions":1,"total":{"prompt":0,"completion":0}}`, `run.suspended {"calls":0}`,
			},
		},
		"a message comes, and hooks note something": {
			`{"kind":"steered","notes":[{"id":"n1","text":"Hurry","event":"e1","who":"ann"},{"id":"n2","text":"a hook's"}],
			  "head":{"status":"running"}}`,
			[]string{`run.message {"message":"Hurry","who":"ann"}`},
		},
		"a reply without a call is answered with a reminder": {
			`{"kind":"replied","head":{"status":"running","lifecycle":"reminder","progress":{"reminders":2},
			  "interactions":3,"usage":{"prompt":0,"completion":0}}}`,
			[]string{`model.no_tool_call {"reminders":2}`, `run.usage {"interactions":3,"total":{"prompt":0,"completion":0}}`},
		},
		"a reply cannot be understood": {
			`{"kind":"replied","misread":"parse_error","head":{"status":"running","usage":{"prompt":0,"completion":0}}}`,
			[]string{
				`model.no_tool_call {"class":"parse_error","reminders":0}`, `run.usage {"interactions":0,"total":{"prompt":0,"completion":0}}`,
			},
		},
		"people and services are asked": {
			`{"kind":"replied","requests":[{"id":"r1","data":{"tool":"pay"}}],"asks":[{"id":"q1","call":"c1","data":{"question":"Really?"}}],
			  "inquiries":[{"id":"i1","section":"retrieval","data":{"task":"t"}}],"head":{"status":"running","usage":{"prompt":0,"completion":0}}}`,
			[]string{
				`permission.requested {"asked":{"tool":"pay"},"request":"r1"}`,
				`question.asked {"question":"q1","call":"c1","asked":{"question":"Really?"}}`,
				`context.asked {"section":"retrieval","call":"i1"}`, `run.usage {"interactions":0,"total":{"prompt":0,"completion":0}}`,
			},
		},
		"one of two approves": {
			`{"kind":"answered","decisions":[{"request":"r1","call":"c1","decision":"viewed"},{"request":"r1","call":"c1","decision":"allow"}],
			  "results":[{"call":"r1","kind":"answer","data":{"decision":"allow"}}],
			  "head":{"status":"running","calls":[{"id":"c1","kind":"inline","status":"suspended","held":"r1"},
			  {"id":"r1","kind":"permission","status":"suspended","gate":{"quorum":2,"allowed":["ann"]}}]}}`,
			[]string{`permission.decided {"decision":{"request":"r1","call":"c1","decision":"allow"},"allowed":1,"quorum":2}`},
		},
		"an allowed call waits for the other requests": {
			`{"kind":"answered","decisions":[{"request":"r1","call":"c1","decision":"allow"}],
			  "head":{"status":"running","calls":[{"id":"c1","kind":"inline","status":"suspended","queued":true},
			  {"id":"r1","kind":"permission","status":"succeeded","gate":{}},{"id":"r2","kind":"permission","status":"suspended","gate":{}}]}}`,
			[]string{`permission.decided {"decision":{"request":"r1","call":"c1","decision":"allow"},"queued":true,"undecided":1}`},
		},
		"calls end": {
			`{"kind":"returned","messages":[{"role":"user","content":[{"kind":"tool_result","call":"c1","tool":"look"}]}],
			  "results":[{"call":"c1","kind":"inline","data":7},{"call":"c2","kind":"inline","data":[1]},
			  {"call":"c3","kind":"inline","data":[2],"error":true},{"call":"q1","kind":"answer","data":{"answer":"yes"},"event":"a1"},
			  {"call":"i1","kind":"answer","data":{"text":"t"}},{"call":"i2","kind":"timeout","data":{},"error":true}],
			  "head":{"status":"running","informed":[{"section":"planning","call":"i2"}],"calls":[
			  {"id":"c2","kind":"inline","tool":"update_plan","status":"succeeded"},{"id":"c3","kind":"inline","tool":"update_plan","status":"failed"},
			  {"id":"q1","kind":"question","tool":"c1","status":"succeeded"},{"id":"i1","kind":"context","tool":"retrieval","status":"succeeded"}]}}`,
			[]string{
				`call.result {"call":"c1","data":7,"error":false,"kind":"inline","tool":"look"}`,
				`call.result {"call":"c2","data":[1],"error":false,"kind":"inline","tool":"update_plan"}`, `plan.updated {"call":"c2","plan":[1]}`,
				`call.result {"call":"c3","data":[2],"error":true,"kind":"inline","tool":"update_plan"}`,
				`question.answered {"question":"q1","call":"c1","answer":{"answer":"yes"},"event":"a1"}`,
				`context.answered {"section":"retrieval","call":"i1","answer":{"text":"t"}}`,
				`context.answered {"section":"planning","call":"i2","answer":{},"error":true}`,
			},
		},
		"the run ends for want of tokens": {
			`{"kind":"ended","terminal":{"type":"sys.desk.error","data":{"code":"quota_exhausted"}},
			  "head":{"status":"done","reason":"quota","reason_code":"tokens","interactions":3,"usage":{"prompt":20,"completion":5},"delegated":7}}`,
			[]string{
				`run.exhausted {"interactions":3,"limit":"tokens","used":32}`,
				`run.finished {"code":"tokens","data":{"code":"quota_exhausted"},"reason":"quota","type":"sys.desk.error"}`,
			},
		},
		"the history is removed": {`{"kind":"purged","head":{"status":"done","reason":"completed"}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var e core.Entry
			if err := json.Unmarshal([]byte(c.entry), &e); err != nil {
				t.Fatal(err)
			}
			e.Rev, e.At, e.Head.Run, e.Head.Agent = 4, 1790000000800, "trip 7", "desk"
			var have []string
			for i, l := range milestone.Of(&e) {
				have = append(have, l.Type+" "+string(l.Data))
				if l.Run != "trip 7" || l.Agent != "desk" || l.Revision != 4 || l.Index != i || l.Count != len(c.want) ||
					l.Turn != e.Head.Turns || l.Time != e.At || l.Ephemeral {
					t.Errorf("event %d is %+v", i, l)
				}
			}
			if diff := cmp.Diff(c.want, have); diff != "" {
				t.Errorf("-want +told:\n%s", diff)
			}
		})
	}
}

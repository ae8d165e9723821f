package runner_test

import (
	"testing"

	"agentd/internal/runner"
)

// An answer that comes while the effects of its call are still carried out finds the run's state: its journal is not read.
func TestState_IsThereForAnAnswerThatComesAtOnce(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]bool{"to the first call, of an entry by itself": true, "to the second call, of a joint entry": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newTalk(t, calls("lookup"), calls("lookup"), says)
			r := a.worker()
			answered := false
			atOnce := func() {
				a.publishing = nil
				m := a.answer(r, 9)
				a.journals = 0
				a.handle(r, m, runner.Ack)
				if answered = true; a.journals > 0 {
					t.Errorf("the journal was read %d times for the answer", a.journals)
				}
			}
			if first {
				a.publishing = atOnce
			}
			m := a.begin(r)
			if !first {
				a.publishing = atOnce
				a.handle(r, m, runner.Ack)
			}
			if !answered {
				t.Fatal("no call was published")
			}
		})
	}
}

package show

import (
	"fmt"
	"io"

	"agentd/internal/eval"
)

// Evaluation writes what came of cases: a table with a line for each, and what was wrong in those that failed.
func Evaluation(w io.Writer, r *eval.Report, columns int) error {
	var t Table
	t.Row("", "case", "right", "pass@1", fmt.Sprintf("pass^%d", r.K))
	passed, cases := 0, 0
	for _, s := range r.Suites {
		for i := range s.Cases {
			c := &s.Cases[i]
			sign := stepSigns["failed"]
			if cases++; c.Passed {
				passed++
				sign = stepSigns["done"]
			}
			t.Row(sign, Line(s.Name+"/"+c.Name, LineMax), fmt.Sprintf("%d/%d", c.Right, r.Tries), rate(c.Pass1), rate(c.PassK))
		}
		t.Row("", Line(s.Name, LineMax), "", rate(s.Pass1), rate(s.PassK))
	}
	if err := t.Write(w, "", columns); err != nil {
		return err
	}
	for _, s := range r.Suites {
		for i := range s.Cases {
			if c := &s.Cases[i]; !c.Passed {
				fmt.Fprintf(w, "\n%s\n", Line(s.Name+"/"+c.Name, LineMax))
				for _, wrong := range c.Wrong() {
					fmt.Fprintln(w, "  "+Visible(wrong))
				}
			}
		}
	}
	_, err := fmt.Fprintf(w, "\n%d of %s passed: at least %s of pass^%d\n", passed, Count(cases, "case"), rate(r.Least), r.K)
	return err
}

func rate(p float64) string { return fmt.Sprintf("%.2f", p) }

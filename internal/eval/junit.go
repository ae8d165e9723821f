package eval

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// The form of JUnit's reports that continuous integration reads.
type (
	junit struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitFailure `xml:"failure"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes the report for continuous integration: a test is a case, which fails with the faults of its tries.
func (r *Report) WriteJUnit(w io.Writer) error {
	var all junit
	for _, s := range r.Suites {
		suite := junitSuite{Name: s.Name, Tests: len(s.Cases)}
		for i := range s.Cases {
			c := &s.Cases[i]
			one := junitCase{Class: s.Name, Name: c.Name}
			if !c.Passed {
				suite.Failures++
				one.Failure = &junitFailure{
					Message: fmt.Sprintf("%d of %d tries are right", c.Right, r.Tries), Text: "\n" + strings.Join(c.Wrong(), "\n") + "\n",
				}
			}
			suite.Cases = append(suite.Cases, one)
		}
		all.Tests += suite.Tests
		all.Failures += suite.Failures
		all.Suites = append(all.Suites, suite)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return fmt.Errorf("write the JUnit report: %w", err)
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return fmt.Errorf("write the JUnit report: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// Wrong are the tries that were, each in one line.
func (c *CaseReport) Wrong() []string {
	var all []string
	for i, fault := range c.Faults {
		if fault != "" {
			all = append(all, fmt.Sprintf("try %d %s", i+1, fault))
		}
	}
	return all
}

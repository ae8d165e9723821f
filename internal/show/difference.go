package show

import (
	"encoding/json"
	"strings"
)

// Difference is what two proposals for a tool differ in, by lines: "- " was, "+ " is, "  " both. It is safe to show.
func Difference(tool string, was, is json.RawMessage) string {
	var b strings.Builder
	for _, line := range DifferentProposals(tool, was, is) {
		b.WriteString(line.Mark + " " + line.Text + "\n")
	}
	return b.String()
}

// ComparedLine is a line of two documents: of the first ("-"), of the second ("+"), or of both (" ").
type ComparedLine struct{ Mark, Text string }

// DifferentLines are the lines of two JSON documents side by side. They are safe to show.
func DifferentLines(was, is json.RawMessage) []ComparedLine {
	return differentTexts(VisibleJSON(was), VisibleJSON(is))
}

func differentTexts(was, is string) (lines []ComparedLine) {
	x, y := strings.Split(was, "\n"), strings.Split(is, "\n")
	line := func(mark, text string) { lines = append(lines, ComparedLine{mark, text}) }
	if len(x)*len(y) > maxCompared {
		for _, text := range x {
			line("-", text)
		}
		for _, text := range y {
			line("+", text)
		}
		return lines
	}
	length := commonLines(x, y)
	i, j := 0, 0
	for i < len(x) || j < len(y) {
		switch {
		case i < len(x) && j < len(y) && x[i] == y[j]:
			line(" ", x[i])
			i, j = i+1, j+1
		case j == len(y) || i < len(x) && length[i+1][j] >= length[i][j+1]:
			line("-", x[i])
			i++
		default:
			line("+", y[j])
			j++
		}
	}
	return lines
}

// maxCompared bounds the work of a comparison: lines times lines.
const maxCompared = 4 << 20

// commonLines is the length of the longest common subsequence of x[i:] and y[j:].
func commonLines(x, y []string) [][]int {
	length := make([][]int, len(x)+1)
	for i := range length {
		length[i] = make([]int, len(y)+1)
	}
	for i := len(x) - 1; i >= 0; i-- {
		for j := len(y) - 1; j >= 0; j-- {
			if x[i] == y[j] {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	return length
}

package show

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Table aligns cells in columns, two blanks apart.
type Table struct {
	rows [][]string
}

// Row adds a row. Escape what others wrote.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Write writes the rows, each after the indent. On a terminal of so many columns, where the first row has the names of the others' cells,
// no line is wider: the cells of the last column are cut, and of those that shrinkable has; where even that is not enough, each cell has a
// line of its own.
func (t *Table) Write(w io.Writer, indent string, columns int) error {
	var widths []int
	for _, row := range t.rows {
		for n, cell := range row {
			if n == len(widths) {
				widths = append(widths, 0)
			}
			widths[n] = max(widths[n], Width(cell))
		}
	}
	if columns > 0 && narrow(t.rows[0], widths, columns-Width(indent)) > 0 {
		return t.writeCells(w, columns)
	}
	for _, row := range t.rows {
		if _, err := fmt.Fprintln(w, strings.TrimRight(tableLine(t.rows[0], widths, row, indent, columns), " ")); err != nil {
			return err
		}
	}
	return nil
}

// Begin is Write of rows whose last cells, empty in t, come one after the other: it writes the first row, and returns what writes the next.
func (t *Table) Begin(w io.Writer, columns int) (next func(last string) error, err error) {
	titles := t.rows[0]
	widths := make([]int, len(titles))
	for _, row := range t.rows {
		for n, cell := range row {
			widths[n] = max(widths[n], Width(cell))
		}
	}
	widths[len(titles)-1] = leastRoom
	blocks := columns > 0 && narrow(titles, widths, columns) > 0
	n := 0
	write := func(last string) error {
		cells := append(slices.Clone(t.rows[n][:len(titles)-1]), last)
		if n++; !blocks {
			_, err := fmt.Fprintln(w, strings.TrimRight(tableLine(titles, widths, cells, "", columns), " "))
			return err
		}
		if n > 2 { // after the titles and the first
			fmt.Fprintln(w)
		}
		return (&Table{rows: [][]string{titles, cells}}).writeCells(w, columns)
	}
	if blocks {
		n = 1
		return write, nil
	}
	return write, write(titles[len(titles)-1])
}

// tableLine is a row in columns of these widths, the last of which has what a terminal of so many columns leaves.
func tableLine(titles []string, widths []int, row []string, indent string, columns int) string {
	last, text := len(row)-1, indent
	for n, cell := range row[:last] {
		text += Pad(cut(titles[n])(cell, widths[n]), widths[n]) + gap
	}
	end := row[last]
	if columns > 0 {
		end = Cut(end, columns-Width(text))
	}
	return text + end
}

// nameColumns are the titles of columns that have names.
var nameColumns = []string{"RUN", "AGENT", "DOMAIN", "PRINCIPAL", "TOOL", "TYPE"}

// cut is how the cells of a column are made shorter: names in their middle, as what is alike in front often differs in the end.
func cut(title string) func(text string, n int) string {
	if slices.Contains(nameColumns, title) {
		return Middle
	}
	return Cut
}

// shrinkable are the columns, by their titles, that lose what a line has too much, one group after the other: as much as leaves them least
// columns, so that what is in them can be told apart. In 80 columns every list has its lines then.
var shrinkable = []struct {
	titles []string
	least  int
}{{nameColumns, 24}, {[]string{"STATUS", "ASKS", "REASON", "VERSIONS"}, 16}, {nameColumns, 12}}

// narrow takes from the widths of columns what a line of them has too much, in a group first from the widest. It returns what is too much even
// then. The last column has leastRoom, or what it needs.
func narrow(titles []string, widths []int, columns int) (over int) {
	last := len(widths) - 1
	over = min(widths[last], leastRoom) - columns
	for _, width := range widths[:last] {
		over += width + len(gap)
	}
	for _, group := range shrinkable {
		for over > 0 {
			widest := -1
			for n, title := range titles[:last] {
				if slices.Contains(group.titles, title) && widths[n] > group.least && (widest < 0 || widths[n] > widths[widest]) {
					widest = n
				}
			}
			if widest < 0 {
				break
			}
			widths[widest]--
			over--
		}
	}
	return over
}

// gap is between the columns of a table.
const gap = "  "

// writeCells writes each cell after its name.
func (t *Table) writeCells(w io.Writer, columns int) error {
	titles, taken := t.rows[0], len(gap)
	for _, title := range titles {
		taken = max(taken, Width(title)+len(gap))
	}
	for n, row := range t.rows[1:] {
		of := Table{}
		for i, cell := range row {
			of.Row(titles[i], cut(titles[i])(cell, max(columns-taken, leastRoom)))
		}
		if n > 0 {
			fmt.Fprintln(w)
		}
		if err := of.Write(w, "", 0); err != nil {
			return err
		}
	}
	return nil
}

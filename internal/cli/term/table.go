package term

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Colour paints s where the output has colours.
func (o *Output) Colour(c text.Color, s string) string {
	if s == "" || !o.colours || !o.terminal {
		return s
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", int(c), s)
}

// Table returns an empty table for the output: with lines on a terminal, with bare columns in a
// pipe. The caller fills, renders and prints it.
func (o *Output) Table(header ...any) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.Style().Format.Footer = text.FormatDefault
	if !o.terminal {
		t.Style().Options = table.OptionsNoBordersAndSeparators
		t.Style().Box.PaddingLeft = ""
		t.Style().Box.PaddingRight = "  "
		t.SuppressTrailingSpaces()
	}
	t.AppendHeader(table.Row(header))
	return t
}

// Fit cuts texts of a Table on a terminal that is too narrow for it, with an ellipsis, so that each
// row takes one line. Of the columns given, counted from 1, the widest is cut first, none to less
// than its header. The other columns, such as those of IDs, which people copy, stay whole, so a row
// of long ones still takes more than a line.
func (o *Output) Fit(header []any, rows [][]any, columns ...int) {
	if !o.terminal || len(columns) == 0 {
		return
	}
	width := make([]int, len(header))
	total := 1 // the line at the left
	for c := range header {
		width[c] = cells(header[c])
		for _, row := range rows {
			width[c] = max(width[c], cells(row[c]))
		}
		total += width[c] + 3 // a space at each side, and the line at the right
	}
	for over := total - o.Width(); over > 0; over-- {
		widest := slices.MaxFunc(columns, func(a, b int) int { return cmp.Compare(width[a-1]-cells(header[a-1]), width[b-1]-cells(header[b-1])) })
		if width[widest-1] <= cells(header[widest-1]) {
			break
		}
		width[widest-1]--
	}
	for _, row := range rows {
		for _, c := range columns {
			row[c-1] = text.Snip(fmt.Sprint(row[c-1]), width[c-1], "…")
		}
	}
}

// cells is how many columns of a terminal a value takes.
func cells(v any) int { return text.StringWidthWithoutEscSequences(fmt.Sprint(v)) }

// RightAligned aligns the columns that hold numbers, counted from 1.
func RightAligned(t table.Writer, columns ...int) {
	var configs []table.ColumnConfig
	for _, n := range columns {
		configs = append(configs, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
}

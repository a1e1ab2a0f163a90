package term

import (
	"fmt"

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

// Table returns an empty table for the output: with lines on a terminal, with bare columns in a pipe. The caller fills,
// renders and prints it.
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

// RightAligned aligns the columns that hold numbers, counted from 1.
func RightAligned(t table.Writer, columns ...int) {
	var configs []table.ColumnConfig
	for _, n := range columns {
		configs = append(configs, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
}

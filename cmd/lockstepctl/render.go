package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"go.yaml.in/yaml/v3"

	"github.com/lockstep-ha/lockstep/topology"
)

// page is text for people that is being written.
type page struct {
	out               io.Writer
	colour, noHeaders bool
}

// render writes an answer in the chosen format.
func (a *app) render(out *bytes.Buffer, ans answer) error {
	switch a.output {
	case formatJSON:
		return writeJSON(out, ans.data)
	case formatYAML:
		return writeYAML(out, ans.data)
	}
	ans.text(&page{out: out, colour: a.colour, noHeaders: a.noHeaders})
	return nil
}

func writeJSON(out io.Writer, data any) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(data)
}

// writeYAML writes the JSON form as YAML: same names, same order.
func writeYAML(out io.Writer, data any) error {
	var buf bytes.Buffer
	if err := writeJSON(&buf, data); err != nil {
		return err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(buf.Bytes(), &doc); err != nil {
		return fmt.Errorf("as YAML: %w", err)
	}
	plain(&doc)
	enc := yaml.NewEncoder(out)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return fmt.Errorf("as YAML: %w", err)
	}
	return enc.Close()
}

// plain drops the braces and quotes that JSON needs. Strings that YAML would
// read as something else keep their quotes.
func plain(n *yaml.Node) {
	if len(n.Content) > 0 || n.Kind == yaml.ScalarNode {
		n.Style = 0
	}
	for _, c := range n.Content {
		plain(c)
	}
}

// line writes a line.
func (p *page) line(format string, args ...any) {
	_, _ = fmt.Fprintf(p.out, format+"\n", args...) // into a buffer
}

// table writes rows below a header, nil for none.
func (p *page) table(header []string, rows [][]string) {
	t := table.NewWriter()
	t.SetStyle(table.Style{
		Box:    table.BoxStyle{PaddingRight: "  "},
		Format: table.FormatOptions{Header: text.FormatDefault, Row: text.FormatDefault},
	})
	t.SuppressTrailingSpaces()
	if header != nil && !p.noHeaders {
		t.AppendHeader(row(header))
	}
	for _, r := range rows {
		t.AppendRow(row(r))
	}
	p.line("%s", t.Render())
}

func row(cells []string) table.Row {
	out := make(table.Row, len(cells))
	for i, c := range cells {
		out[i] = c
	}
	return out
}

// Colours. Each says what the text says too.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (p *page) paint(code, s string) string {
	if !p.colour || code == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// state writes the labels of a server.
func (p *page) state(labels []string) string {
	if len(labels) == 0 {
		return "unknown"
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(labels, n) })
	}
	code := ""
	switch {
	case has(topology.LabelDown, topology.LabelAuthError):
		code = red
	case has(topology.LabelLagging, topology.LabelMaintenance, topology.LabelDrained):
		code = yellow
	case has(topology.LabelRunning):
		code = green
	}
	return p.paint(code, clean(strings.Join(labels, ", ")))
}

// clean takes control characters out of text that others have written: it must
// not steer the terminal or break lines.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\u2028', r == '\u2029':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return '?'
		}
		return r
	}, s)
}

// or returns the cleaned text, or other for none.
func or(s, other string) string {
	if s == "" {
		return other
	}
	return clean(s)
}

func yesNo(b *bool) string {
	switch {
	case b == nil:
		return "unknown"
	case *b:
		return "yes"
	}
	return "no"
}

// nullable writes a value that may be null as JSON does.
func nullable(b *bool) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprint(*b)
}

func ms(n int64) string { return (time.Duration(n) * time.Millisecond).String() }

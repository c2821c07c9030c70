package config

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong, or for a warning doubtful, in a
// configuration.
type Problem struct {
	File string
	// Line counts from 1; 0 means that the problem is not of one line.
	Line int
	// Key is the dotted path of the key, with arrays counted from 0, as in
	// cluster.main.server[1].address. It may be empty.
	Key string
	// Value is the value as TOML, or empty if it is missing or does not matter.
	// It is masked where it is or may be a secret.
	Value string
	// Text says what is wrong.
	Text string
	// Remedy says what to do about it. It may be empty.
	Remedy string
}

// String prints the problem in one line, for example
//
//	/etc/lockstep/lockstep.toml:12: cluster.main.interval = 2: a duration needs a unit: write "2s"
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Key != "" {
		b.WriteString(p.Key)
		if p.Value != "" {
			b.WriteString(" = " + p.Value)
		}
		b.WriteString(": ")
	}
	b.WriteString(p.Text)
	if p.Remedy != "" {
		b.WriteString(": " + p.Remedy)
	}
	return b.String()
}

// Problems are all the reasons for which a configuration is refused, sorted by
// line.
type Problems []Problem

// Error prints every problem, one a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

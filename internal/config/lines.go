package config

import (
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// maxDepth is how deep in tables and arrays lines are noted. No key of a
// configuration is deeper than half of it.
const maxDepth = 12

// scanLines maps the path of every key, table and array element to the line on
// which it begins. The text must be valid TOML; of other text it makes no sense,
// but no harm either.
func scanLines(text string) map[string]int {
	text = strings.TrimPrefix(text, "\ufeff")
	s := &scanner{text: text, line: 1, lines: map[string]int{}, arrays: map[string]int{}}
	s.document()
	return s.lines
}

type scanner struct {
	text  string
	at    int // offset of the next byte
	line  int
	lines map[string]int
	// arrays counts the elements of each array of tables made of [[headers]].
	arrays map[string]int
}

// place is where in the document a value belongs.
type place struct {
	path  string
	depth int
}

func (p place) child(name string) place { return place{childPath(p.path, name), p.depth + 1} }

func (p place) index(i int) place { return place{indexPath(p.path, i), p.depth + 1} }

// childPath appends a key to a dotted path, in quotes if TOML would need them.
func childPath(path, name string) string {
	bare := name != ""
	for i := 0; i < len(name) && bare; i++ {
		bare = isBare(name[i])
	}
	if !bare {
		name = strconv.Quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// indexPath appends the number of an array element to a dotted path.
func indexPath(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func isBare(c byte) bool {
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) more() bool { return s.at < len(s.text) }

// accept moves past a byte if it is the next one.
func (s *scanner) accept(c byte) bool {
	if !s.more() || s.text[s.at] != c {
		return false
	}
	s.next()
	return true
}

func (s *scanner) next() {
	if s.text[s.at] == '\n' {
		s.line++
	}
	s.at++
}

// blank moves past spaces, newlines and comments.
func (s *scanner) blank() {
	for s.more() {
		switch s.peek() {
		case ' ', '\t', '\r', '\n':
			s.next()
		case '#':
			for s.more() && s.peek() != '\n' {
				s.next()
			}
		default:
			return
		}
	}
}

// note keeps the first line of a place.
func (s *scanner) note(p place, line int) {
	if _, ok := s.lines[p.path]; !ok && p.depth <= maxDepth {
		s.lines[p.path] = line
	}
}

func (s *scanner) document() {
	var table place
	for {
		s.blank()
		if !s.more() {
			return
		}
		before := s.at
		if s.peek() == '[' {
			table = s.header()
		} else {
			s.pair(table)
		}
		if s.at == before {
			s.next()
		}
	}
}

// header reads [a.b] or [[a.b]] and returns the table it opens.
func (s *scanner) header() place {
	line := s.line
	s.accept('[')
	array := s.accept('[')
	keys := s.key()
	s.blank()
	s.accept(']')
	if array {
		s.accept(']')
	}
	var p place
	for i, k := range keys {
		if p.depth > maxDepth {
			return p
		}
		p = p.child(k)
		s.note(p, line)
		switch n := s.arrays[p.path]; {
		case array && i == len(keys)-1:
			s.arrays[p.path] = n + 1
			p = p.index(n)
			s.note(p, line)
		case n > 0:
			p = p.index(n - 1)
		}
	}
	return p
}

// pair reads key = value.
func (s *scanner) pair(p place) {
	line := s.line
	for _, k := range s.key() {
		if p.depth > maxDepth {
			break
		}
		p = p.child(k)
		s.note(p, line)
	}
	s.blank()
	if s.accept('=') {
		s.blank()
		s.value(p)
	}
}

// key reads a dotted key.
func (s *scanner) key() []string {
	var keys []string
	for {
		s.blank()
		switch c := s.peek(); {
		case c == '"' || c == '\'':
			keys = append(keys, unquote(s.quoted()))
		case isBare(c):
			start := s.at
			for s.more() && isBare(s.peek()) {
				s.at++
			}
			keys = append(keys, s.text[start:s.at])
		default:
			return keys
		}
		s.blank()
		if !s.accept('.') {
			return keys
		}
	}
}

func (s *scanner) value(p place) {
	switch c := s.peek(); c {
	case '"', '\'':
		s.quoted()
	case '[':
		s.next()
		for i := 0; ; i++ {
			s.blank()
			if !s.more() || s.accept(']') {
				return
			}
			before, e := s.at, p
			if p.depth <= maxDepth {
				e = p.index(i)
				s.note(e, s.line)
			}
			s.value(e)
			s.blank()
			if s.accept(','); s.at == before {
				s.next()
			}
		}
	case '{':
		s.next()
		for {
			s.blank()
			if !s.more() || s.accept('}') {
				return
			}
			before := s.at
			s.pair(p)
			s.blank()
			if s.accept(','); s.at == before {
				s.next()
			}
		}
	default:
		for s.more() && !strings.ContainsRune(",]}#\n", rune(s.peek())) {
			s.next()
		}
	}
}

// quoted moves past a string of any of the four kinds and returns it with its
// quotes.
func (s *scanner) quoted() string {
	start, q := s.at, s.peek()
	end := string(q)
	if long := strings.Repeat(end, 3); strings.HasPrefix(s.text[s.at:], long) {
		end = long
	}
	s.at += len(end)
	for s.more() && !strings.HasPrefix(s.text[s.at:], end) {
		if q == '"' && s.accept('\\') && !s.more() {
			break
		}
		s.next()
	}
	s.at = min(s.at+len(end), len(s.text))
	// A long string may end in one or two quotes of its own.
	for i := 0; i < 2 && len(end) == 3 && s.peek() == q; i++ {
		s.at++
	}
	return s.text[start:s.at]
}

// unquote returns the name that a quoted key stands for.
func unquote(quoted string) string {
	if !strings.Contains(quoted, `\`) {
		return strings.Trim(quoted, quoted[:1])
	}
	var v struct{ K string }
	if _, err := toml.Decode("K = "+quoted, &v); err != nil {
		return quoted
	}
	return v.K
}

package fakedb

import (
	"fmt"
	"strings"
	"sync"
)

// sqlError is an error that the client gets.
type sqlError struct {
	number uint16
	state  string
	text   string
}

// errKilled is the error of a statement whose session was killed.
const errKilled = 1927

func killed() *sqlError { return &sqlError{errKilled, "70100", "Connection was killed"} }

func syntaxError(near string) *sqlError {
	return &sqlError{1064, "42000", fmt.Sprintf("You have an error in your SQL syntax, or the fake server does not know it; near '%s'", near)}
}

// statement is a compiled statement. It answers with a table, or nil for OK.
type statement func(*session) (*table, *sqlError)

// expr is a compiled expression; row holds the columns of the row at hand.
type expr func(ss *session, row map[string]value) (value, *sqlError)

// compiled keeps statements by text, for all servers: monitors ask the same ones
// over and over.
var compiled = struct {
	sync.RWMutex
	m map[string][]statement
}{m: map[string][]statement{}}

const maxCompiled = 4096

// prepare compiles a text that may hold several statements. As in MariaDB each
// is parsed when its turn comes, so that a mistake does not keep those before it
// from being run.
func prepare(text string) ([]statement, *sqlError) {
	compiled.RLock()
	out := compiled.m[text]
	compiled.RUnlock()
	if out != nil {
		return out, nil
	}
	for _, part := range split(text) {
		st, err := compile(part)
		if err != nil {
			st = func(*session) (*table, *sqlError) { return nil, err }
		}
		out = append(out, st)
	}
	if len(out) == 0 {
		return nil, &sqlError{1065, "42000", "Query was empty"}
	}
	compiled.Lock()
	defer compiled.Unlock()
	if len(compiled.m) >= maxCompiled {
		clear(compiled.m)
	}
	compiled.m[text] = out
	return out, nil
}

// parser reads the tokens of one statement.
type parser struct {
	toks []token
	at   int
}

func (p *parser) peek() token {
	if p.at < len(p.toks) {
		return p.toks[p.at]
	}
	return token{}
}

func (p *parser) next() token {
	t := p.peek()
	p.at++
	return t
}

// words skips the given words or signs; it skips nothing if they are not all there.
func (p *parser) words(ws ...string) bool {
	for i, w := range ws {
		if p.at+i >= len(p.toks) || p.toks[p.at+i].kind == 's' || !strings.EqualFold(p.toks[p.at+i].text, w) {
			return false
		}
	}
	p.at += len(ws)
	return true
}

func (p *parser) bad() *sqlError {
	var b strings.Builder
	for _, t := range p.toks[min(p.at, len(p.toks)):] {
		b.WriteString(t.text)
		b.WriteByte(' ')
	}
	return syntaxError(strings.TrimSpace(b.String()))
}

func (p *parser) end() bool { return p.at >= len(p.toks) }

package fakedb

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
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

// token is a word, number, string, variable or sign of SQL.
type token struct {
	kind byte // w word, n number, s string, @ variable, or the sign
	text string
}

func isWord(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// split tokenizes a text and cuts it at semicolons. Empty statements fall out.
func split(text string) [][]token {
	var out [][]token
	var cur []token
	for i := 0; i < len(text); {
		c := text[i]
		start := i
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case c == ';':
			if len(cur) > 0 {
				out = append(out, cur)
			}
			cur = nil
			i++
		case c == '\'' || c == '"' || c == '`':
			var b strings.Builder
			for i++; i < len(text); i++ {
				if text[i] == c {
					if i+1 >= len(text) || text[i+1] != c {
						break
					}
					i++
				} else if text[i] == '\\' && c != '`' && i+1 < len(text) {
					i++
				}
				b.WriteByte(text[i])
			}
			i++
			kind := byte('s')
			if c == '`' {
				kind = 'w'
			}
			cur = append(cur, token{kind, b.String()})
		case c == '@':
			for i++; i < len(text) && (text[i] == '@' || text[i] == '.' || isWord(text[i])); i++ {
			}
			cur = append(cur, token{'@', text[start:i]})
		case isWord(c):
			for i++; i < len(text) && isWord(text[i]); i++ {
			}
			kind := byte('w')
			if _, err := strconv.ParseInt(text[start:i], 10, 64); err == nil {
				kind = 'n'
			}
			cur = append(cur, token{kind, text[start:i]})
		case c == ':' && strings.HasPrefix(text[i:], ":="):
			i += 2
			cur = append(cur, token{':', ":="})
		default:
			i++
			cur = append(cur, token{c, text[start:i]})
		}
	}
	if len(cur) > 0 {
		out = append(out, cur)
	}
	return out
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

func compile(toks []token) (statement, *sqlError) {
	p := &parser{toks: toks}
	var st statement
	var err *sqlError
	switch {
	case p.words("SELECT"):
		st, err = p.selectStmt()
	case p.words("DO"):
		st, err = p.doStmt()
	case p.words("SET"):
		st, err = p.setStmt()
	case p.words("SHOW", "ALL", "SLAVES", "STATUS"), p.words("SHOW", "ALL", "REPLICAS", "STATUS"):
		st = func(ss *session) (*table, *sqlError) {
			ss.srv.mu.Lock()
			defer ss.srv.mu.Unlock()
			if !ss.srv.may("SLAVE MONITOR") {
				return nil, &sqlError{1227, "42000", "Access denied; you need (at least one of) the SLAVE MONITOR privilege(s) for this operation"}
			}
			return ss.srv.slaves(), nil
		}
	case p.words("SHOW", "GRANTS"):
		st = func(ss *session) (*table, *sqlError) {
			ss.srv.mu.Lock()
			defer ss.srv.mu.Unlock()
			list := strings.Join(ss.srv.grants, ", ")
			if list == "" {
				list = "USAGE"
			}
			return &table{
				columns: []column{{name: "Grants for " + ss.user + "@%"}},
				rows:    [][]value{{str("GRANT " + list + " ON *.* TO `" + ss.user + "`@`%`")}},
			}, nil
		}
	case p.words("SHOW", "GLOBAL", "VARIABLES", "LIKE"):
		st, err = p.showLike((*Server).variableTexts)
	case p.words("SHOW", "GLOBAL", "STATUS", "LIKE"):
		st, err = p.showLike((*Server).statusTexts)
	case p.words("KILL", "CONNECTION"), p.words("KILL"):
		st, err = p.killStmt()
	default:
		err = p.bad()
	}
	if err == nil && !p.end() {
		err = p.bad()
	}
	return st, err
}

func (p *parser) selectStmt() (statement, *sqlError) {
	type item struct {
		name string
		expr expr
	}
	var items []item
	for {
		start := p.at
		e, err := p.expr()
		if err != nil {
			return nil, err
		}
		it := item{expr: e}
		for _, t := range p.toks[start:p.at] {
			it.name += t.text
		}
		if p.words("AS") {
			it.name = p.next().text
		}
		items = append(items, it)
		if !p.words(",") {
			break
		}
	}
	processes := p.words("FROM", "information_schema", ".", "PROCESSLIST")
	where := expr(func(*session, map[string]value) (value, *sqlError) { return integer(1), nil })
	if processes && p.words("WHERE") {
		var err *sqlError
		if where, err = p.expr(); err != nil {
			return nil, err
		}
	}
	return func(ss *session) (*table, *sqlError) {
		rows := []map[string]value{nil}
		if processes {
			rows = ss.srv.processes(ss)
		}
		t := &table{columns: make([]column, len(items))}
		for i, it := range items {
			t.columns[i].name = it.name
		}
		for _, row := range rows {
			ok, err := where(ss, row)
			if err != nil {
				return nil, err
			}
			if ok.null || ok.num() == 0 {
				continue
			}
			out := make([]value, len(items))
			for i, it := range items {
				if out[i], err = it.expr(ss, row); err != nil {
					return nil, err
				}
				t.columns[i].kind = out[i].kind
			}
			t.rows = append(t.rows, out)
		}
		return t, nil
	}, nil
}

// processes are the rows of the process list that a session may see, in the order
// of their ids.
func (s *Server) processes(viewer *session) []map[string]value {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]map[string]value, 0, len(s.sessions))
	for _, ss := range s.sessions {
		if ss.user != viewer.user && !s.may("PROCESS") {
			continue
		}
		out = append(out, map[string]value{
			"id": {kind: kindBig, n: int64(ss.id)}, "user": str(ss.user), "host": str(ss.conn.RemoteAddr().String()),
			"db": null(kindString), "command": str("Sleep"),
		})
	}
	slices.SortFunc(out, func(a, b map[string]value) int { return int(a["id"].n - b["id"].n) })
	return out
}

func (p *parser) doStmt() (statement, *sqlError) {
	list, err := p.list()
	if err != nil {
		return nil, err
	}
	return func(ss *session) (*table, *sqlError) {
		for _, e := range list {
			if _, err := e(ss, nil); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}, nil
}

func (p *parser) list() ([]expr, *sqlError) {
	var out []expr
	for {
		e, err := p.expr()
		if err != nil {
			return nil, err
		}
		out = append(out, e)
		if !p.words(",") {
			return out, nil
		}
	}
}

func (p *parser) setStmt() (statement, *sqlError) {
	if p.words("NAMES") {
		p.next()
		return func(*session) (*table, *sqlError) { return nil, nil }, nil
	}
	var all []statement
	for {
		st, err := p.assignment()
		if err != nil {
			return nil, err
		}
		all = append(all, st)
		if !p.words(",") {
			break
		}
	}
	return func(ss *session) (*table, *sqlError) {
		for _, st := range all {
			if _, err := st(ss); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}, nil
}

func (p *parser) assignment() (statement, *sqlError) {
	global := p.words("GLOBAL")
	if !global {
		p.words("SESSION")
	}
	t := p.next()
	name := fold(t.text)
	if rest, ok := strings.CutPrefix(name, "@@global."); ok {
		global, name = true, rest
	}
	name = strings.TrimPrefix(strings.TrimPrefix(name, "@@session."), "@@")
	if (t.kind != 'w' && t.kind != '@') || !p.words("=") && !p.words(":=") {
		p.at--
		return nil, p.bad()
	}
	var e expr
	if w := p.peek(); w.kind == 'w' && (p.at+1 >= len(p.toks) || p.toks[p.at+1].kind != '(') {
		// A bare word: ON and OFF are flags.
		p.at++
		v := str(w.text)
		if i := slices.Index([]string{"off", "on"}, fold(w.text)); i >= 0 {
			v = integer(int64(i))
		}
		e = func(*session, map[string]value) (value, *sqlError) { return v, nil }
	} else {
		var err *sqlError
		if e, err = p.expr(); err != nil {
			return nil, err
		}
	}
	return func(ss *session) (*table, *sqlError) {
		v, err := e(ss, nil)
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(name, "@") {
			ss.setLocal(name, v)
			return nil, nil
		}
		old, err := ss.variable(name, global)
		if err != nil {
			return nil, err
		}
		if global {
			ss.srv.SetVariable(name, v.text())
			return nil, nil
		}
		if old.kind.number() {
			v = value{kind: old.kind, n: v.num()}
		}
		if name == "wait_timeout" {
			v.n = min(max(v.n, 1), 31536000)
			ss.idle = time.Duration(v.n) * time.Second
		}
		if ss.vars == nil {
			ss.vars = map[string]value{}
		}
		ss.vars[name] = v
		return nil, nil
	}, nil
}

func (ss *session) setLocal(name string, v value) {
	if ss.locals == nil {
		ss.locals = map[string]value{}
	}
	ss.locals[name] = v
}

// variable reads a variable; those that the session has not set are the global ones.
func (ss *session) variable(name string, global bool) (value, *sqlError) {
	if v, ok := ss.vars[name]; ok && !global {
		return v, nil
	}
	ss.srv.mu.Lock()
	v, ok := ss.srv.vars[name]
	ss.srv.mu.Unlock()
	if !ok {
		return value{}, &sqlError{1193, "HY000", fmt.Sprintf("Unknown system variable '%s'", name)}
	}
	return v.value, nil
}

// showLike is SHOW ... LIKE over the names and values that all gives, called with
// Server.mu held.
func (p *parser) showLike(all func(*Server) map[string]string) (statement, *sqlError) {
	pattern := p.next()
	if pattern.kind != 's' {
		return nil, p.bad()
	}
	return func(ss *session) (*table, *sqlError) {
		t := &table{columns: []column{{name: "Variable_name"}, {name: "Value"}}}
		ss.srv.mu.Lock()
		defer ss.srv.mu.Unlock()
		for name, text := range all(ss.srv) {
			if like(fold(name), fold(pattern.text)) {
				t.rows = append(t.rows, []value{str(name), str(text)})
			}
		}
		slices.SortFunc(t.rows, func(a, b []value) int { return strings.Compare(a[0].s, b[0].s) })
		return t, nil
	}, nil
}

func (s *Server) variableTexts() map[string]string {
	out := make(map[string]string, len(s.vars))
	for name, v := range s.vars {
		out[name] = v.value.text()
		if v.flag && v.value.kind.number() {
			out[name] = [...]string{"OFF", "ON"}[min(v.value.n, 1)]
		}
	}
	return out
}

func (s *Server) statusTexts() map[string]string {
	return map[string]string{
		"Uptime":            strconv.Itoa(int(time.Since(s.started) / time.Second)),
		"Threads_connected": strconv.Itoa(len(s.sessions)),
	}
}

func like(s, pattern string) bool {
	for i := range len(pattern) {
		switch c := pattern[i]; {
		case c == '%':
			for j := range len(s) + 1 {
				if like(s[j:], pattern[i+1:]) {
					return true
				}
			}
			return false
		case s == "" || c != '_' && c != s[0]:
			return false
		}
		s = s[1:]
	}
	return s == ""
}

func (p *parser) killStmt() (statement, *sqlError) {
	e, err := p.expr()
	if err != nil {
		return nil, err
	}
	return func(ss *session) (*table, *sqlError) {
		v, err := e(ss, nil)
		switch {
		case err != nil:
			return nil, err
		case v.num() == int64(ss.id):
			return nil, killed()
		case !ss.srv.Kill(uint32(v.num())):
			return nil, &sqlError{1094, "HY000", fmt.Sprintf("Unknown thread id: %d", v.num())}
		}
		return nil, nil
	}, nil
}

// expr reads an expression: a value, or a comparison by = or IN.
func (p *parser) expr() (expr, *sqlError) {
	left, err := p.primary()
	if err != nil {
		return nil, err
	}
	var list []expr
	switch {
	case p.words("="):
		right, err := p.primary()
		if err != nil {
			return nil, err
		}
		list = []expr{right}
	case p.words("IN", "("):
		if list, err = p.list(); err != nil {
			return nil, err
		}
		if !p.words(")") {
			return nil, p.bad()
		}
	default:
		return left, nil
	}
	return func(ss *session, row map[string]value) (value, *sqlError) {
		a, err := left(ss, row)
		if err != nil {
			return value{}, err
		}
		result := integer(0)
		for _, e := range list {
			b, err := e(ss, row)
			if err != nil {
				return value{}, err
			}
			eq := equal(a, b)
			if eq.n == 1 {
				return eq, nil
			}
			if eq.null {
				result = eq
			}
		}
		return result, nil
	}, nil
}

func (p *parser) primary() (expr, *sqlError) {
	constant := func(v value) (expr, *sqlError) {
		return func(*session, map[string]value) (value, *sqlError) { return v, nil }, nil
	}
	switch t := p.next(); t.kind {
	case 's':
		return constant(str(t.text))
	case 'n':
		n, _ := strconv.ParseInt(t.text, 10, 64) // it was one for the tokenizer
		return constant(integer(n))
	case '@':
		return p.at1(fold(t.text))
	case '(':
		e, err := p.expr()
		if err == nil && !p.words(")") {
			err = p.bad()
		}
		return e, err
	case 'w':
		if p.words("(") {
			return p.call(t.text)
		}
		if strings.EqualFold(t.text, "NULL") {
			return constant(null(kindString))
		}
		name := fold(t.text)
		return func(_ *session, row map[string]value) (value, *sqlError) {
			v, ok := row[name]
			if !ok {
				return v, &sqlError{1054, "42S22", fmt.Sprintf("Unknown column '%s' in 'SELECT'", t.text)}
			}
			return v, nil
		}, nil
	}
	p.at--
	return nil, p.bad()
}

// at1 is a variable of the server or of the user.
func (p *parser) at1(name string) (expr, *sqlError) {
	if rest, ok := strings.CutPrefix(name, "@@"); ok {
		scope, bare, found := strings.Cut(rest, ".")
		if !found {
			bare = rest
		}
		return func(ss *session, _ map[string]value) (value, *sqlError) {
			return ss.variable(bare, found && scope == "global")
		}, nil
	}
	if p.words(":=") {
		e, err := p.expr()
		if err != nil {
			return nil, err
		}
		return func(ss *session, row map[string]value) (value, *sqlError) {
			v, err := e(ss, row)
			if err == nil {
				ss.setLocal(name, v)
			}
			return v, err
		}, nil
	}
	return func(ss *session, _ map[string]value) (value, *sqlError) {
		v, ok := ss.locals[name]
		if !ok {
			v = null(kindString)
		}
		return v, nil
	}, nil
}

// functions are the functions of SQL, with the number of their arguments;
// negative is any number.
var functions = map[string]struct {
	args int
	run  func(ss *session, args []value) (value, *sqlError)
}{
	"connection_id": {0, func(ss *session, _ []value) (value, *sqlError) { return connection(int64(ss.id)), nil }},
	"version":       {0, func(ss *session, _ []value) (value, *sqlError) { return str(ss.srv.version), nil }},
	"current_user":  {0, func(ss *session, _ []value) (value, *sqlError) { return str(ss.user + "@%"), nil }},
	"concat": {-1, func(_ *session, args []value) (value, *sqlError) {
		var b strings.Builder
		for _, a := range args {
			if a.null {
				return null(kindString), nil
			}
			b.WriteString(a.text())
		}
		return str(b.String()), nil
	}},
	"get_lock": {2, func(ss *session, args []value) (value, *sqlError) {
		if args[0].null || args[0].text() == "" {
			return null(kindInt), nil
		}
		seconds, err := strconv.ParseFloat(args[1].text(), 64)
		if err != nil {
			seconds = 0
		}
		got, ok := ss.srv.take(ss, args[0].text(), time.Duration(seconds*float64(time.Second)))
		if !ok {
			return value{}, killed()
		}
		return truth(got), nil
	}},
	"release_lock": {1, func(ss *session, args []value) (value, *sqlError) { return ss.srv.release(ss, args[0].text()), nil }},
	"release_all_locks": {0, func(ss *session, _ []value) (value, *sqlError) {
		ss.srv.mu.Lock()
		defer ss.srv.mu.Unlock()
		return value{kind: kindUint, n: ss.srv.freeAll(ss)}, nil
	}},
	"is_used_lock": {1, func(ss *session, args []value) (value, *sqlError) {
		if id := ss.srv.Owner(args[0].text()); id != 0 {
			return integer(int64(id)), nil
		}
		return null(kindInt), nil
	}},
	"is_free_lock": {1, func(ss *session, args []value) (value, *sqlError) {
		return truth(ss.srv.Owner(args[0].text()) == 0), nil
	}},
	"sleep": {1, func(ss *session, args []value) (value, *sqlError) {
		select {
		case <-time.After(time.Duration(args[0].num()) * time.Second):
			return integer(0), nil
		case <-ss.ended:
			return value{}, killed()
		}
	}},
}

func (p *parser) call(name string) (expr, *sqlError) {
	var args []expr
	if !p.words(")") {
		var err *sqlError
		if args, err = p.list(); err != nil {
			return nil, err
		}
		if !p.words(")") {
			return nil, p.bad()
		}
	}
	if strings.EqualFold(name, "IF") && len(args) == 3 {
		return func(ss *session, row map[string]value) (value, *sqlError) {
			c, err := args[0](ss, row)
			if err != nil {
				return value{}, err
			}
			if !c.null && c.num() != 0 {
				return args[1](ss, row)
			}
			return args[2](ss, row)
		}, nil
	}
	f, ok := functions[fold(name)]
	if !ok {
		return nil, &sqlError{1305, "42000", fmt.Sprintf("FUNCTION %s does not exist", name)}
	}
	if f.args >= 0 && len(args) != f.args {
		return nil, &sqlError{1582, "42000", fmt.Sprintf("Incorrect parameter count in the call to native function '%s'", name)}
	}
	return func(ss *session, row map[string]value) (value, *sqlError) {
		values := make([]value, len(args))
		for i, a := range args {
			var err *sqlError
			if values[i], err = a(ss, row); err != nil {
				return value{}, err
			}
		}
		return f.run(ss, values)
	}, nil
}

package fakedb

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

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

package fakedb

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

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

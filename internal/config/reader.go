package config

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reader collects what is wrong while a document is compared with the schema.
type reader struct {
	path     string
	env      func(string) (string, bool)
	mode     fs.FileMode
	lines    map[string]int
	problems Problems
	warnings Problems
}

// values are the values of one table of the document, with the defaults filled
// in: string, Secret, bool, int64, time.Duration or []string by key.
type values struct {
	at    string // path of the table
	name  string // of a table by name
	raw   map[string]any
	value map[string]any
	// bad are the keys whose value was refused; they have their default.
	bad map[string]bool
	// tables are the tables below, by key and in the order of the result.
	tables map[string][]*values
}

// given reports whether the file has the key, rightly or wrongly.
func (v *values) given(name string) bool { _, ok := v.raw[name]; return ok }

func (v *values) str(name string) string        { s, _ := v.value[name].(string); return s }
func (v *values) flag(name string) bool         { b, _ := v.value[name].(bool); return b }
func (v *values) num(name string) int           { n, _ := v.value[name].(int64); return int(n) }
func (v *values) dur(name string) time.Duration { d, _ := v.value[name].(time.Duration); return d }
func (v *values) strs(name string) []string     { s, _ := v.value[name].([]string); return slices.Clone(s) }
func (v *values) path(name string) string       { return childPath(v.at, name) }
func (v *values) printed(name string) string    { return printValue(v.raw[name]) }
func (v *values) sub(name string) []*values     { return v.tables[name] }
func (v *values) anyBad(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return v.bad[n] })
}

// lineOf returns the line of a path or, if the document does not have it, of the
// nearest table around it.
func (r *reader) lineOf(path string) int {
	for path != "" {
		if n, ok := r.lines[path]; ok {
			return n
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return 0
}

func (r *reader) problem(path, value, text, remedy string) {
	r.problems = append(r.problems, Problem{File: r.path, Line: r.lineOf(path), Key: path, Value: value, Text: text, Remedy: remedy})
}

func (r *reader) warn(path, value, text, remedy string) {
	r.warnings = append(r.warnings, Problem{File: r.path, Line: r.lineOf(path), Key: path, Value: value, Text: text, Remedy: remedy})
}

// table compares one table with its keys.
func (r *reader) table(at string, keys []key, raw map[string]any) *values {
	v := &values{at: at, raw: raw, value: map[string]any{}, bad: map[string]bool{}, tables: map[string][]*values{}}
	for i := range keys {
		r.key(v, &keys[i])
	}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		if find(keys, name) == nil {
			text, remedy := unknown(keys, name)
			r.problem(childPath(at, name), "", text, remedy)
		}
	}
	return v
}

func find(keys []key, name string) *key {
	for i := range keys {
		if keys[i].name == name {
			return &keys[i]
		}
	}
	return nil
}

// key reads one key of a table.
func (r *reader) key(v *values, k *key) {
	raw, given := v.raw[k.name]
	path := v.path(k.name)
	switch {
	case k.kind >= kindTable:
		v.tables[k.name] = r.below(v, k, raw, given)
		return
	case given:
		got, fault := r.convert(k, raw)
		if fault == nil {
			v.value[k.name] = got
			return
		}
		r.problem(path, printFor(k, raw), fault.text, fault.remedy)
		v.bad[k.name] = true
	case k.required:
		r.problem(path, "", "this key is required", "")
		v.bad[k.name] = true
	}
	v.value[k.name] = k.def
}

// below reads the tables under a key.
func (r *reader) below(v *values, k *key, raw any, given bool) []*values {
	path := v.path(k.name)
	wrong := func(want string) []*values {
		r.problem(path, printFor(k, raw), want+" is expected, not "+typeName(raw), "")
		v.bad[k.name] = true
		return nil
	}
	switch k.kind {
	case kindTable:
		m, ok := raw.(map[string]any)
		if given && !ok {
			wrong("a table [" + k.name + "]")
		}
		return []*values{r.table(path, k.keys, m)}

	case kindNamed:
		m, ok := raw.(map[string]any)
		if given && !ok {
			return wrong("a table [" + k.name + ".NAME]")
		}
		var out []*values
		for _, name := range slices.Sorted(maps.Keys(m)) {
			at := childPath(path, name)
			t, ok := m[name].(map[string]any)
			if !ok {
				text, remedy := "a table ["+path+".NAME] is expected, not "+typeName(m[name]), ""
				if find(k.keys, name) != nil {
					text, remedy = "this key belongs to one "+k.name, "write it below a line ["+path+".NAME]"
				}
				r.problem(at, "", text, remedy)
				v.bad[k.name] = true
				continue
			}
			if _, f := checkName(name); f != nil {
				r.problem(at, "", f.text, f.remedy)
			}
			tv := r.table(at, k.keys, t)
			tv.name = name
			out = append(out, tv)
		}
		return out

	default:
		var list []map[string]any
		switch raw := raw.(type) {
		case []map[string]any:
			list = raw
		case []any:
			for _, e := range raw {
				m, ok := e.(map[string]any)
				if !ok {
					return wrong("tables [[" + path + "]]")
				}
				list = append(list, m)
			}
		default:
			if given {
				return wrong("a list of tables [[" + path + "]]")
			}
		}
		var out []*values
		for i, m := range list {
			out = append(out, r.table(indexPath(path, i), k.keys, m))
		}
		return out
	}
}

// convert checks a value and gives it its Go type.
func (r *reader) convert(k *key, raw any) (any, *fault) {
	switch k.kind {
	case kindBool:
		if b, ok := raw.(bool); ok {
			return b, nil
		}
		return nil, &fault{text: "true or false is expected, not " + typeName(raw)}

	case kindInt:
		n, ok := raw.(int64)
		if !ok {
			return nil, &fault{text: "a whole number is expected, not " + typeName(raw)}
		}
		if outside(n, k.min, k.max) {
			return nil, &fault{text: "out of range", remedy: k.bounds()}
		}
		return n, nil

	case kindDuration:
		if s, ok := raw.(string); ok {
			var f *fault
			if raw, f = r.expand(s); f != nil {
				return nil, f
			}
		}
		d, f := readDuration(raw)
		if f != nil {
			return nil, f
		}
		if outside(d, k.min, k.max) {
			return nil, &fault{text: "out of range", remedy: k.bounds()}
		}
		return d, nil

	case kindStrings:
		list, ok := raw.([]any)
		if !ok {
			return nil, &fault{text: "an array of strings is expected, not " + typeName(raw)}
		}
		out := make([]string, 0, len(list))
		for i, e := range list {
			s, f := r.text(k, e)
			if f != nil {
				f.text = fmt.Sprintf("element %d: %s", i, f.text)
				return nil, f
			}
			out = append(out, s)
		}
		return out, nil

	case kindSecret:
		s, f := r.text(k, raw)
		if f != nil {
			return nil, f
		}
		if s == "" && raw != "" {
			return nil, &fault{text: "the password is empty once its variables are filled in",
				remedy: noPassword(k.name) + " if the account has none"}
		}
		return Secret(s), nil

	default:
		return r.text(k, raw)
	}
}

// text checks a string and fills in its variables.
func (r *reader) text(k *key, raw any) (string, *fault) {
	s, ok := raw.(string)
	if !ok {
		return "", &fault{text: "a string is expected, not " + typeName(raw)}
	}
	s, f := r.expand(s)
	if f != nil {
		return "", f
	}
	switch {
	case k.kind == kindEnum && !slices.Contains(k.choices, s):
		return "", &fault{text: "not one of the values of this key", remedy: "the values are " + strings.Join(k.choices, ", ")}
	case k.check == nil, s == "" && !k.required && k.def == nil && k.kind != kindStrings:
		return s, nil
	}
	return k.check(s)
}

// bounds says between which values a number may be.
func (k *key) bounds() string {
	switch {
	case k.min == nil:
		return ""
	case k.max == nil:
		return "at least " + printBound(k.min)
	}
	return "between " + printBound(k.min) + " and " + printBound(k.max)
}

func printBound(v any) string {
	if d, ok := v.(time.Duration); ok {
		return strconv.Quote(Duration(d).String())
	}
	return fmt.Sprint(v)
}

// typeName says what type a TOML value has.
func typeName(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case bool:
		return "true or false"
	case int64:
		return "a whole number"
	case float64:
		return "a number with a fraction"
	case time.Time:
		return "a date or time"
	case []any, []map[string]any:
		return "an array"
	case map[string]any:
		return "a table"
	}
	return fmt.Sprintf("a %T", v)
}

// printFor prints a value of the file for a message, unless it is a secret.
func printFor(k *key, v any) string {
	if k.kind == kindSecret || k.hide {
		return mask
	}
	return printValue(v)
}

// maxPrinted is how many characters of a string a message holds.
const maxPrinted = 80

func printValue(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		if r := []rune(v); len(r) > maxPrinted {
			return strconv.Quote(string(r[:maxPrinted])) + "…"
		}
		return strconv.Quote(v)
	case time.Time:
		return v.Format(time.RFC3339)
	case []map[string]any:
		return "[…]"
	case map[string]any:
		return "{…}"
	case []any:
		parts := make([]string, min(len(v), maxPrinted/8))
		for i := range parts {
			parts[i] = printValue(v[i])
		}
		if len(parts) < len(v) {
			parts = append(parts, "…")
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case Secret:
		return mask
	}
	return fmt.Sprint(v)
}

// outside reports whether n is below lowest or above highest; a bound that is
// nil, or of another type, bounds nothing.
func outside[T int64 | time.Duration](n T, lowest, highest any) bool {
	if low, ok := lowest.(T); ok && n < low {
		return true
	}
	high, ok := highest.(T)
	return ok && n > high
}

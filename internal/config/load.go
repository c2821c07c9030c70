package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// MaxSize is the size in bytes above which a configuration is refused.
const MaxSize = 1 << 20

// Load reads the configuration from a file. The error is a [Problems] if the file
// could be read. The function env looks up an environment variable, as
// [os.LookupEnv] does; nil stands for an empty environment.
func Load(path string, env func(string) (string, bool)) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read configuration: %s is not a regular file", path)
	}
	if info.Size() > MaxSize {
		return nil, tooLarge(path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return parse(path, text, env, info.Mode())
}

// Parse checks the text of a configuration. The path is used for messages and as
// the place from which relative file names count; the file itself is not read.
// The error is a [Problems]. For env see [Load].
func Parse(path string, text []byte, env func(string) (string, bool)) (*File, error) {
	return parse(path, text, env, 0)
}

func tooLarge(path string) Problems {
	return Problems{{File: path, Text: fmt.Sprintf("the file has more than %d bytes", MaxSize), Remedy: "is it the right file?"}}
}

// parse does the work of Load and Parse; mode is that of the file, if it has one.
func parse(path string, text []byte, env func(string) (string, bool), mode fs.FileMode) (*File, error) {
	if len(text) > MaxSize {
		return nil, tooLarge(path)
	}
	if env == nil {
		env = func(string) (string, bool) { return "", false }
	}
	r := &reader{path: path, env: env, mode: mode}
	var doc map[string]any
	if _, err := toml.Decode(string(text), &doc); err != nil {
		return nil, Problems{r.syntax(err)}
	}
	r.lines = scanLines(string(text))
	f := r.file(r.table("", schema, doc))
	if len(r.problems) > 0 {
		sortByLine(r.problems)
		return nil, r.problems
	}
	sortByLine(r.warnings)
	f.Warnings = r.warnings
	return f, nil
}

// syntax turns an error of the TOML decoder into a problem. The decoder quotes
// what it could not read, which next to a password may be the password.
func (r *reader) syntax(err error) Problem {
	p := Problem{File: r.path, Text: "this is not valid TOML"}
	if pe, ok := errors.AsType[toml.ParseError](err); ok {
		p.Line = pe.Position.Line
		if mayBeSecret(pe.LastKey) {
			p.Key, p.Remedy = pe.LastKey, "look at this line and at the one above"
		} else {
			p.Text += ": " + pe.Message
		}
	}
	return p
}

// mayBeSecret reports whether the value of a key, or a part of it, may be a secret.
func mayBeSecret(key string) bool {
	for _, word := range []string{"pas", "secret", "command", "url", "token"} {
		if strings.Contains(strings.ToLower(key), word) {
			return true
		}
	}
	return false
}

func sortByLine(ps []Problem) {
	slices.SortStableFunc(ps, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
}

package config

import (
	"fmt"
	"strings"
)

// expand fills in ${VAR} from the environment and turns $$ into $. Any other $
// stands for itself.
func (r *reader) expand(s string) (string, *fault) {
	if !strings.Contains(s, "$") {
		return s, nil
	}
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			b.WriteString(s)
			return b.String(), nil
		}
		b.WriteString(s[:i])
		switch s[i+1] {
		case '$':
			b.WriteByte('$')
			s = s[i+2:]
		case '{':
			name, rest, ok := strings.Cut(s[i+2:], "}")
			if !ok || !isVariable(name) {
				return "", &fault{text: "${ begins the name of an environment variable, and none follows",
					remedy: "write ${NAME}, or $${ for the characters themselves"}
			}
			v, ok := r.env(name)
			if !ok {
				return "", &fault{text: fmt.Sprintf("the environment variable %s is not set", shown(name)),
					remedy: "set it, or write $${ for the characters themselves"}
			}
			b.WriteString(v)
			s = rest
		default:
			b.WriteByte('$')
			s = s[i+1:]
		}
	}
}

// isVariable reports whether s can be the name of an environment variable.
func isVariable(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isBare(s[i]) || s[i] == '-' || i == 0 && s[i] >= '0' && s[i] <= '9' {
			return false
		}
	}
	return s != ""
}

// shown is the name of a variable for messages. What does not look like one by
// custom (capital letters) may be a part of a password, and is masked.
func shown(name string) string {
	if name != strings.ToUpper(name) {
		return mask
	}
	return name
}

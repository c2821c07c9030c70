package fakedb

import (
	"strconv"
	"strings"
)

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

package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// KeyDoc describes one key of the configuration for people.
type KeyDoc struct {
	// Key is the dotted path, as in cluster.NAME.server[].address.
	Key string
	// Type is string, secret, boolean, integer, duration, enum, array of strings,
	// table, tables by name or array of tables.
	Type string
	// Default is the default as TOML, or in words where it is not a fixed value.
	// It is empty if the key is required, is a table, or is unset by default.
	Default string
	// Unit is that of a number; a duration carries its own.
	Unit     string
	Required bool
	// Allowed says which values there are, if not any of the type.
	Allowed string
	// Doc is one line that says what the key is for.
	Doc string
}

var kindNames = [...]string{
	kindString: "string", kindSecret: "secret", kindBool: "boolean", kindInt: "integer", kindDuration: "duration",
	kindEnum: "enum", kindStrings: "array of strings", kindTable: "table", kindNamed: "tables by name", kindList: "array of tables",
}

// Reference returns all keys, each table before the keys in it.
func Reference() []KeyDoc { return describe("", schema) }

func describe(at string, keys []key) []KeyDoc {
	var out []KeyDoc
	for i := range keys {
		k := &keys[i]
		d := KeyDoc{
			Key: childPath(at, k.name), Type: kindNames[k.kind], Default: k.defDoc, Unit: k.unit,
			Required: k.required, Allowed: strings.Join(k.choices, ", "), Doc: k.doc,
		}
		if k.def != nil {
			d.Default = printDefault(k.def)
		}
		switch k.kind {
		case kindInt:
			d.Allowed = k.bounds()
		case kindDuration:
			d.Unit = "written with the value: ms, s, m, h"
			d.Allowed = k.bounds()
		}
		out = append(out, d)
		below := d.Key
		switch k.kind {
		case kindNamed:
			below += ".NAME"
		case kindList:
			below += "[]"
		}
		out = append(out, describe(below, k.keys)...)
	}
	return out
}

func printDefault(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case time.Duration:
		return printBound(v)
	case []string:
		quoted := make([]string, len(v))
		for i, s := range v {
			quoted[i] = strconv.Quote(s)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	}
	return fmt.Sprint(v)
}

// Markdown renders the reference as Markdown, one section for each table of the
// configuration.
func Markdown() string {
	var b strings.Builder
	section(&b, "Top of the file", "Before the first table.", schema)
	section(&b, "[http]", find(schema, "http").doc, httpKeys)
	section(&b, "[agent]", find(schema, "agent").doc, agentKeys)
	section(&b, "[[hook]]", find(schema, "hook").doc, hookKeys)
	section(&b, "[consul]", find(schema, "consul").doc, consulKeys)
	section(&b, "[etcd]", find(schema, "etcd").doc, etcdKeys)
	section(&b, "[[haproxy]]", find(schema, "haproxy").doc, haproxyKeys)
	section(&b, "[cluster.NAME]", find(schema, "cluster").doc, clusterKeys)
	section(&b, "[[cluster.NAME.server]]", find(clusterKeys, "server").doc, serverKeys)
	return b.String()
}

func section(b *strings.Builder, title, doc string, keys []key) {
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	if strings.HasPrefix(title, "[") {
		title = "`" + title + "`"
	}
	fmt.Fprintf(b, "## %s\n\n%s\n\n| Key | Type | Default | Meaning |\n|---|---|---|---|\n", title, doc)
	for _, d := range describe("", keys) {
		if strings.ContainsAny(d.Key, ".[") || strings.Contains(d.Type, "table") {
			continue
		}
		def := d.Default
		switch {
		case d.Required:
			def = "required"
		case def != "" && find(keys, d.Key).def != nil:
			def = "`" + def + "`"
		}
		typ := d.Type
		if d.Type == "integer" && d.Unit != "" {
			typ += ", in " + d.Unit
		}
		meaning := d.Doc
		if d.Allowed != "" {
			meaning += " Values: " + d.Allowed + "."
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", d.Key, typ, def, strings.ReplaceAll(meaning, "|", `\|`))
	}
}

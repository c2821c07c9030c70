package config

import (
	"fmt"
	"strings"
)

// unknown says what is wrong with a key that is not in a table, and which one may
// have been meant.
func unknown(keys []key, name string) (text, remedy string) {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	text = "unknown key"
	if find(keys, strings.ToLower(name)) != nil {
		return text, fmt.Sprintf("keys are in lower case: write %q", strings.ToLower(name))
	}
	if where := homes(name); len(where) > 0 {
		return text, fmt.Sprintf("%q belongs in %s", name, strings.Join(where, " or "))
	}
	if best := nearest(names, name); best != "" {
		return text, fmt.Sprintf("did you mean %q?", best)
	}
	return text, "the keys here are " + strings.Join(names, ", ")
}

// homes are the tables that have a key of this name.
func homes(name string) []string {
	var out []string
	if find(httpKeys, name) != nil {
		out = append(out, "[http]")
	}
	if find(hookKeys, name) != nil {
		out = append(out, "[[hook]]")
	}
	if k := find(clusterKeys, name); k != nil {
		out = append(out, "[cluster.NAME]")
	}
	if find(serverKeys, name) != nil {
		out = append(out, "[[cluster.NAME.server]]")
	}
	if find(schema, name) != nil {
		out = append(out, "the top of the file, before any table")
	}
	return out
}

// nearest returns the name that is the fewest edits away from got, or "" if even
// that one is too different to have been meant.
func nearest(names []string, got string) string {
	best, least := "", max(1, (len(got)+1)/2)
	if len(got) > 64 {
		return ""
	}
	for _, n := range names {
		if d := distance(strings.ToLower(got), n); d <= least && (best == "" || d < least) {
			best, least = n, d
		}
	}
	return best
}

// distance is the Levenshtein distance of two strings.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		diagonal := row[0]
		row[0] = i + 1
		for j := range y {
			cost := diagonal
			if x[i] != y[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(y)]
}

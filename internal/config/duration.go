package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that is written with its unit, as in "2s" or
// "500ms". A bare number is refused, and so is a negative duration.
type Duration time.Duration

// UnmarshalTOML reads the value of a TOML key.
func (d *Duration) UnmarshalTOML(v any) error {
	got, fault := readDuration(v)
	if fault != nil {
		return fault
	}
	*d = Duration(got)
	return nil
}

// UnmarshalText reads the duration from text.
func (d *Duration) UnmarshalText(text []byte) error { return d.UnmarshalTOML(string(text)) }

// MarshalText writes the duration as it is read.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String prints the duration as people write it: 8h and not 8h0m0s.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func readDuration(v any) (time.Duration, *fault) {
	s := ""
	switch v := v.(type) {
	case string:
		s = v
	case int64:
		return 0, noUnit(strconv.FormatInt(v, 10))
	case float64:
		return 0, noUnit(strconv.FormatFloat(v, 'f', -1, 64))
	default:
		return 0, &fault{text: "a duration is expected, not " + typeName(v), remedy: `write it like "2s" or "500ms"`}
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, noUnit(s)
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, &fault{text: "this is not a duration", remedy: `write it like "2s", "500ms" or "1h30m"; the units are ms, s, m and h`}
	case d < 0:
		return 0, &fault{text: "a duration cannot be negative"}
	}
	return d, nil
}

func noUnit(number string) *fault {
	if strings.HasPrefix(number, "-") {
		return &fault{text: "a duration cannot be negative"}
	}
	f := &fault{text: "a duration needs a unit", remedy: `write it like "2s"`}
	if _, err := time.ParseDuration(number + "s"); err == nil {
		f.remedy = fmt.Sprintf("write %q", number+"s")
	}
	return f
}

// fault is what is wrong with a value, without the place.
type fault struct{ text, remedy string }

func (f *fault) Error() string {
	if f.remedy == "" {
		return f.text
	}
	return f.text + ": " + f.remedy
}

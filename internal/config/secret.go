package config

import (
	"encoding/json"
	"fmt"
	"io"
)

// mask stands for a secret wherever one would be printed.
const mask = "*****"

// Secret is a string that does not print: every formatted or encoded form of it is
// "*****", or empty if it is empty. Reveal gives the string. It is not for the key
// of a map, which encoding/json writes as it is.
type Secret string

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// GoString is what %#v prints.
func (s Secret) GoString() string { return s.String() }

// Format prints the mask whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText writes the mask.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON writes the mask.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

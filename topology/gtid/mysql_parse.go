package gtid

import (
	"fmt"
	"slices"
	"strings"
)

// UUID is the server_uuid of a MySQL server.
type UUID [16]byte

// uuidLength is the length of the text of a UUID.
const uuidLength = 36

const hexDigits = "0123456789abcdef"

// ParseUUID parses a UUID in the form 8-4-4-4-12 hexadecimal digits of either
// case. White space around it is tolerated. An error wraps [ErrMalformed].
func ParseUUID(text string) (UUID, error) {
	u, reason := parseUUID(strings.Trim(text, blank))
	if reason != "" {
		return UUID{}, malformed("UUID", text, "%s", reason)
	}
	return u, nil
}

// String returns the UUID in lower case.
func (u UUID) String() string {
	b := make([]byte, 0, uuidLength)
	for i, v := range u {
		if dashBefore(i) {
			b = append(b, '-')
		}
		b = append(b, hexDigits[v>>4], hexDigits[v&15])
	}
	return string(b)
}

// Compare orders UUIDs by their bytes, which is also the order of their texts.
func (u UUID) Compare(v UUID) int { return slices.Compare(u[:], v[:]) }

// IsZero reports whether the UUID is all zero, which no server has.
func (u UUID) IsZero() bool { return u == UUID{} }

// dashBefore reports whether the text of a UUID has a dash before its i-th byte.
func dashBefore(i int) bool { return i == 4 || i == 6 || i == 8 || i == 10 }

func parseUUID(text string) (u UUID, reason string) {
	if len(text) != uuidLength {
		return UUID{}, fmt.Sprintf("UUID %s is not %d characters long", quote(text), uuidLength)
	}
	at := 0
	for i := range u {
		if dashBefore(i) {
			if text[at] != '-' {
				return UUID{}, fmt.Sprintf("UUID %s lacks the dash at character %d", quote(text), at+1)
			}
			at++
		}
		high, low := hexValue(text[at]), hexValue(text[at+1])
		if high < 0 || low < 0 {
			return UUID{}, fmt.Sprintf("UUID %s has other than hexadecimal digits", quote(text))
		}
		u[i] = byte(high<<4 | low)
		at += 2
	}
	return u, ""
}

// hexValue returns the value of a hexadecimal digit, or -1.
func hexValue(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	default:
		return -1
	}
}

// maxTagLength is the longest tag, in bytes.
const maxTagLength = 32

// parseTag returns a tag in lower case: a letter or underscore, followed by
// letters, digits and underscores, at most 32 in all.
func parseTag(text string) (tag, reason string) {
	if text == "" {
		return "", "tag is missing"
	}
	if len(text) > maxTagLength {
		return "", fmt.Sprintf("tag %s is longer than %d characters", quote(text), maxTagLength)
	}
	for i := range len(text) {
		c := text[i]
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return "", fmt.Sprintf("%s is neither an interval nor a tag", quote(text))
		}
	}
	return strings.ToLower(text), ""
}

// ParseSet parses the text of a MySQL GTID set:
//
//	uuid:interval[:interval]...[:tag:interval[:interval]...]...[,uuid:...]...
//
// A tag applies to all intervals after it, up to the next tag or UUID, and its
// case does not matter. As with MySQL, elements may be empty, white space
// including line breaks may stand between any two of UUID, tag, number and
// punctuation, the same source may come again, intervals may overlap, and an
// interval that is the wrong way round (5-1) is empty. Numbers must be within 1
// and [MaxNumber].
//
// A UUID or a tag without an interval is an error, as is everything else that is
// not of this form; errors wrap [ErrMalformed].
func ParseSet(text string) (Set, error) {
	const what = "set"
	var ranges []sourceRange
	element := 0
	for part := range strings.SplitSeq(text, ",") {
		element++
		part = strings.Trim(part, blank)
		if part == "" {
			continue
		}
		var reason string
		ranges, reason = appendElement(ranges, part)
		if reason != "" {
			return Set{}, malformed(what, text, "element %d: %s", element, reason)
		}
	}
	return makeSet(ranges), nil
}

// appendElement parses all that belongs to one UUID, from its text on to before
// the next comma.
func appendElement(ranges []sourceRange, text string) (_ []sourceRange, reason string) {
	head, rest, found := strings.Cut(text, ":")
	uuid, reason := parseUUID(strings.Trim(head, blank))
	if reason != "" {
		return nil, reason
	}
	id := TSID{UUID: uuid}
	open := true // whether an interval has to follow
	for found {
		head, rest, found = strings.Cut(rest, ":")
		head = strings.Trim(head, blank)
		switch {
		case head == "":
			return nil, fmt.Sprintf("empty interval after %s", id)
		case head[0] >= '0' && head[0] <= '9':
			interval, reason := parseInterval(head)
			if reason != "" {
				return nil, reason
			}
			open = false
			if interval.First <= interval.Last {
				ranges = append(ranges, sourceRange{id, interval})
			}
		case open && id.Tag != "":
			return nil, fmt.Sprintf("no interval after %s", id)
		default:
			if id.Tag, reason = parseTag(head); reason != "" {
				return nil, reason
			}
			open = true
		}
	}
	if open {
		return nil, fmt.Sprintf("no interval after %s", id)
	}
	return ranges, ""
}

// parseInterval parses a number or two with a dash. The interval may be the wrong
// way round.
func parseInterval(text string) (i Interval, reason string) {
	first, last, isRange := strings.Cut(text, "-")
	if i.First, reason = parseTransactionNumber(strings.Trim(first, blank)); reason != "" {
		return Interval{}, reason
	}
	if !isRange {
		i.Last = i.First
		return i, ""
	}
	if i.Last, reason = parseTransactionNumber(strings.Trim(last, blank)); reason != "" {
		return Interval{}, reason
	}
	return i, ""
}

func parseTransactionNumber(text string) (n uint64, reason string) {
	n, reason = parseNumber("transaction number", text, 64)
	switch {
	case reason != "":
		return 0, reason
	case n == 0:
		return 0, "transaction number 0 is not valid"
	case n > MaxNumber:
		return 0, fmt.Sprintf("transaction number %s is higher than %d", quote(text), uint64(MaxNumber))
	}
	return n, ""
}

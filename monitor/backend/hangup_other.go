//go:build !linux

package backend

// hangups is not available here: a closed connection is noticed at the next probe.
type hangups struct{}

func newHangups() (*hangups, error) { return &hangups{}, nil }

func (*hangups) add(*lockConn, func()) (stop func()) { return func() {} }

func (*hangups) close() {}

package backend

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// hangups tells when idle connections are closed by their peers, through one
// epoll instance for all. The driver does not read while a connection is idle,
// so that without it a dead server is noticed only at the next probe.
type hangups struct {
	mu    sync.Mutex
	epoll *os.File
	raw   syscall.RawConn
	next  int32
	watch map[int32]func()
	done  chan struct{}
}

func newHangups() (*hangups, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	// Non-blocking, so that waiting for it costs a goroutine and no thread.
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	h := &hangups{epoll: os.NewFile(uintptr(fd), "epoll"), watch: map[int32]func(){}, done: make(chan struct{})}
	if h.raw, err = h.epoll.SyscallConn(); err != nil {
		_ = h.epoll.Close()
		return nil, err
	}
	go h.run()
	return h, nil
}

// add calls fn, once and on another goroutine, when the peer of c hangs up. The
// returned function ends the watch.
func (h *hangups) add(c *lockConn, fn func()) (stop func()) {
	raw, err := c.SyscallConn()
	if err != nil {
		return func() {}
	}
	h.mu.Lock()
	h.next++
	if h.next <= 0 {
		h.next = 1
	}
	token := h.next
	h.watch[token] = fn
	h.mu.Unlock()
	err = raw.Control(func(fd uintptr) {
		err := h.raw.Control(func(epoll uintptr) {
			ev := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: token}
			if unix.EpollCtl(int(epoll), unix.EPOLL_CTL_ADD, int(fd), &ev) != nil {
				h.forget(token)
			}
		})
		if err != nil {
			h.forget(token)
		}
	})
	if err != nil {
		h.forget(token)
	}
	return func() { h.forget(token) }
}

func (h *hangups) forget(token int32) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	fn := h.watch[token]
	delete(h.watch, token)
	return fn
}

func (h *hangups) run() {
	defer close(h.done)
	events := make([]unix.EpollEvent, 32)
	for {
		n := 0
		var failed error
		err := h.raw.Read(func(fd uintptr) bool {
			n, failed = unix.EpollWait(int(fd), events, 0)
			return n != 0 || failed != nil
		})
		switch {
		case err != nil: // closed
			return
		case errors.Is(failed, unix.EINTR):
			continue
		case failed != nil:
			return
		}
		for _, ev := range events[:n] {
			if fn := h.forget(ev.Fd); fn != nil {
				fn()
			}
		}
	}
}

func (h *hangups) close() {
	_ = h.epoll.Close()
	<-h.done
}

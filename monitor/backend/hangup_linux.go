package backend

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// hangups tells when idle connections are closed by their peers, through one
// epoll instance for all. The driver does not read while a connection is idle,
// so that without it a dead server is noticed only at the next probe.
type hangups struct {
	mu    sync.Mutex
	epoll int
	wake  [2]int
	next  int32
	watch map[int32]func()
	done  chan struct{}
}

func newHangups() (*hangups, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	h := &hangups{epoll: ep, watch: map[int32]func(){}, done: make(chan struct{})}
	if err := unix.Pipe2(h.wake[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		_ = unix.Close(ep)
		return nil, err
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: 0}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, h.wake[0], &ev); err != nil {
		h.closeFDs()
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
	_ = raw.Control(func(fd uintptr) {
		ev := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: token}
		err = unix.EpollCtl(h.epoll, unix.EPOLL_CTL_ADD, int(fd), &ev)
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
		n, err := unix.EpollWait(h.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		for _, ev := range events[:n] {
			if ev.Fd == 0 {
				return
			}
			if fn := h.forget(ev.Fd); fn != nil {
				fn()
			}
		}
	}
}

func (h *hangups) close() {
	_, _ = unix.Write(h.wake[1], []byte{1})
	<-h.done
	h.closeFDs()
}

func (h *hangups) closeFDs() {
	for _, fd := range []int{h.epoll, h.wake[0], h.wake[1]} {
		_ = unix.Close(fd)
	}
}

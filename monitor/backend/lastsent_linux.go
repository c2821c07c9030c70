package backend

import (
	"time"

	"golang.org/x/sys/unix"
)

// sentResolution is added to what the kernel says: it counts in ticks of its own.
const sentResolution = 20 * time.Millisecond

// sentAgo is how long ago the kernel last sent data on the connection, first
// transmissions and repetitions alike; zero where it does not say.
func sentAgo(s socket) time.Duration {
	raw, err := s.SyscallConn()
	if err != nil {
		return 0
	}
	var ago time.Duration
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			ago = time.Duration(info.Last_data_sent)*time.Millisecond - sentResolution
		}
	})
	if err != nil {
		return 0
	}
	return max(ago, 0)
}

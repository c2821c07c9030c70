//go:build !linux

package testdb

import (
	"os/exec"
	"syscall"
	"time"
)

// startTied starts a command that Ctrl-C does not reach. Without Linux nothing
// ties it to the life of this process.
func startTied(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}

// waitStopped gives a process that was sent SIGSTOP the time to stop.
func waitStopped(int) error {
	time.Sleep(50 * time.Millisecond)
	return nil
}

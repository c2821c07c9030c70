//go:build unix

package publish

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the command lead a process group, to which its end is told.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}

// killGroup kills what is left of the group.
func killGroup(cmd *exec.Cmd) {
	// There is nothing to kill if this fails.
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}

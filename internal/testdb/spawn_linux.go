package testdb

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// starts are the commands to start, for the one goroutine that starts them.
var starts = sync.OnceValue(func() chan<- startRequest {
	requests := make(chan startRequest)
	go func() {
		// The kernel sends the death signal when the starting thread ends, not
		// when the process does; so that thread must last.
		runtime.LockOSThread()
		for r := range requests {
			r.err <- r.cmd.Start()
		}
	}()
	return requests
})

type startRequest struct {
	cmd *exec.Cmd
	err chan<- error
}

// startTied starts a command that is killed when this process ends, however it
// ends, and that Ctrl-C does not reach.
func startTied(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err := make(chan error)
	starts() <- startRequest{cmd, err}
	return <-err
}

// waitStopped waits until a process that was sent SIGSTOP has stopped with all
// its threads, which can run on for a while.
func waitStopped(pid int) error {
	for range 5000 {
		stopped, err := allStopped(pid)
		if err != nil || stopped {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("process %d does not stop", pid)
}

func allStopped(pid int) (bool, error) {
	tasks, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "stat"))
	if err != nil {
		return false, err
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(task)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return false, err
		}
		// The state follows the name, which is in parentheses and may hold any.
		i := bytes.LastIndexByte(stat, ')')
		if i < 0 || i+2 >= len(stat) {
			return false, fmt.Errorf("%s: unknown format", task)
		}
		if state := stat[i+2]; state != 'T' && state != 'Z' && state != 'X' {
			return false, nil
		}
	}
	return true, nil
}

package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const (
	// killAfter is how long a command that was told to end may take for that.
	killAfter = 5 * time.Second
	// maxOutput is how much of the output of a command is logged, in bytes.
	maxOutput = 4096
)

// passedOn are the variables of the daemon that commands get: others may hold
// passwords.
var passedOn = []string{"PATH", "HOME", "LANG", "TZ", "TMPDIR"}

// environment is what a command learns of an event beside its standard input.
func environment(e Event) []string {
	var out []string
	for _, name := range passedOn {
		if v, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+v)
		}
	}
	set := func(name, value string) {
		out = append(out, "LOCKSTEP_"+name+"="+strings.ReplaceAll(value, "\x00", ""))
	}
	set("EVENT", e.Name)
	set("EVENT_ID", e.ID)
	set("CLUSTER", e.Cluster)
	set("TIME", e.Time.Format(time.RFC3339Nano))
	set("MONITOR", e.Monitor)
	set("PRIMARY_MONITOR", strconv.FormatBool(e.PrimaryMonitor))
	set("EVENT_SERVER", e.Server)
	set("EVENT_SERVER_ADDRESS", e.ServerAddress)
	set("FROM", e.From)
	set("FROM_ADDRESS", e.FromAddress)
	set("TO", e.To)
	set("TO_ADDRESS", e.ToAddress)
	set("OPERATION", e.Operation)
	set("OUTCOME", e.Outcome)
	set("CODE", e.Code)
	set("REASON", e.Reason)
	set("MISSED", strconv.Itoa(e.Missed))
	name, address := "", ""
	if e.Primary != nil {
		name, address = e.Primary.Name, e.Primary.Address
	}
	set("PRIMARY_NAME", name)
	set("PRIMARY_ADDRESS", address)
	return out
}

// runCommand runs a command without a shell, in a process group of its own. When ctx
// ends the group is told to end, and killed if it does not. output is the beginning
// of what it wrote.
func runCommand(ctx context.Context, command, env []string, input []byte) (output string, err error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env, cmd.Stdin, cmd.Dir = env, bytes.NewReader(input), "/"
	var out limited
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = killAfter
	ownGroup(cmd)
	err = cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState != nil && cmd.ProcessState.Success() && ctx.Err() == nil {
		err = nil // it has left something behind that keeps its output open
	}
	if err != nil && cmd.Process != nil {
		killGroup(cmd)
	}
	text := strings.TrimSpace(strings.ToValidUTF8(out.String(), "?"))
	switch {
	case err == nil:
		return text, nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return text, fmt.Errorf("%s did not end in time", command[0])
	}
	return text, fmt.Errorf("%s: %w", command[0], err)
}

// limited keeps the first maxOutput bytes.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if room := maxOutput - l.Len(); room > 0 {
		l.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

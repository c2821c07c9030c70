// Command mutants shows that the simulation notices what it should: it breaks one
// rule of the monitors' code at a time and counts the runs until an invariant is
// found broken. It is run by 'make sim-mutants' in the root of the repository.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
)

type mutant struct {
	rule string // what is broken
	file string
	from string
	to   string
}

var mutants = []mutant{
	{"a majority is more than half", "election/election.go", "t.Needed = of/2 + 1", "t.Needed = of / 2"},
	{"a new majority settles", "election/election.go", "settles := t.Since + c.Timing.Settle", "settles := t.Since"},
	{"a vote beside a settled majority counts at once only if that is proved", "election/election.go", "fresh >= needed {", "fresh >= 0 {"},
	{"a majority that has not settled only replaces a dead primary", "election/election.go", "			d.Quick = true", "			d.Role = Primary"},
	{"a lock is believed for a lease only", "locks/state.go", "t.Session != 0 && now < t.SentAt+lease", "t.Session != 0"},
	{"a lease begins before the query is sent", "locks/state.go", "t.SentAt = max(t.SentAt, r.SentAt)", "t.SentAt = r.DoneAt"},
	{"the role ends with the lease", "monitor/monitor.go", "if left := v.lease - m.clock.Now(); left > 0 {", "if left := v.lease - m.clock.Now(); left > 0 || v.lease > 0 {"},
	{"an expired view offers nothing", "monitor/monitor.go", "if v.Primary == nil || left <= 0 {", "if v.Primary == nil {"},
	{"only a usable server is published", "monitor/offer.go", "allowed := c.Usable", "allowed := c.Name != \"\""},
	{"a publication needs both locks of one holder", "monitor/offer.go", "case r.Published() && sv.Writable():", "case r.PrimaryLock.State == locks.Other && sv.Writable():"},
	{"a stale publication is not followed", "monitor/offer.go", "case r.Published() && noMajority(s.d.Tally):", "case false:"},
	{"a publication from before a silence is not followed", "monitor/offer.go", "case r.Published() && s.old[sv.Name].left > 0 &&", "case false &&"},
	{"a lock on another server than the one followed last is stale", "monitor/offer.go", "case r.Published() && m.mayTakeWrites(s, sv.Name):", "case false:"},
	{"relay log that was thrown away is remembered", "monitor/operation/steps.go", "id != \"\" && !lossy {", "id == \"never\" {"},
	{"no replica acknowledges what a hung primary still commits", "monitor/operation/failover.go", "if from.SemiSync.PrimaryOn {\n		out = append(out, pl.noOther", "if false {\n		out = append(out, pl.noOther"},
	{"a server followed through a silent one only is not the primary", "topology/primary.go", "len(names) > near {", "len(names) > 1<<40 {"},
	{"a monitor that was cut off looks anew", "monitor/offer.go", "if !m.led && s.now-m.offeredAt > s.timing.Notice {", "if false {"},
	{"a primary that started again is compared with its replicas", "monitor/offer.go", "if c.Usable && m.unproven {", "if false {"},
	{"an unreachable primary is replaced when its locks are gone", "monitor/operation/detect.go", "max(p.LockSentAt, s.MajoritySince)+s.Timing.StaleAfter()", "0"},
	{"a dead primary has closed the connection", "monitor/operation/detect.go", "case !p.PeerClosed:", "case false:"},
	{"replicas of a dead primary have lost it", "monitor/operation/detect.go", "link != nil && link.IO == \"Yes\" {\n			connected", "link != nil && link.IO == \"never\" {\n			connected"},
	{"forged evidence needs semi-sync that never falls back", "monitor/operation/detect.go", "if s.Mode != election.MajorityOfAll || s.Policy.TrustEvidence {", "if true {"},
	{"the relay log is applied before a promotion", "monitor/operation/steps.go", "link.Received.Without(s.BinlogState), s.SlavePos); n > 0 {", "link.Received.Without(s.BinlogState), s.SlavePos); n > 1<<40 {"},
	{"the most advanced replica is promoted", "topology/candidate.go", "best := slices.MinFunc(most.Best,", "most.Best = []int{len(able) - 1}\n	best := slices.MinFunc(most.Best,"},
	{"nobody has more when it is promoted", "monitor/operation/failover.go", "case behind(c, i, j):", "case false:"},
	{"a switchover waits until the target has all", "monitor/operation/steps.go", "if !covers(t, p.BinlogPos) {", "if false {"},
	{"a switchover sets the primary read-only first", "monitor/operation/switchover.go", "	plan.Steps = append(plan.Steps, ro)\n	if !p.LeaveEvents", "	if !p.LeaveEvents"},
	{"who holds no majority does not operate", "monitor/operate.go", "if s.d.Role != election.Primary && !s.d.Quick {", "if s.d.Role == election.Secondary && s.d.Tally.Held == 0 {"},
	{"a server beside the primary is read-only", "monitor/keep.go", "return m.d.cfg.Policy.AutoRejoin || m.d.cfg.Policy.EnforceReadOnly", "return false"},
	{"what was left read-only is opened", "topology/primary.go", "		if i := idle(servers, g); i >= 0 {", "		if i := idle(servers, g); i >= 1<<40 {"},
	{"locks are released without a majority", "election/election.go", "	d.Release = holding\n	if before.Attempting", "	d.Release = false\n	if before.Attempting"},
}

// bound is a time of the timing that could be shorter, or longer, if it were not
// needed; in percent of what it is.
type bound struct {
	name      string
	file      string
	from, to  string // the latter with a place for the percentage
	inPercent []int
}

var bounds = []bound{
	{"how long a majority settles", "election/election.go", "settles := t.Since + c.Timing.Settle", "settles := t.Since + c.Timing.Settle*%d/100", []int{95, 90, 75, 50, 25}},
	{"how long after the last byte an unreachable primary is replaced (W + N)", "monitor/operation/detect.go",
		"max(p.LockSentAt, s.MajoritySince)+s.Timing.StaleAfter()", "max(p.LockSentAt, s.MajoritySince)+s.Timing.StaleAfter()*%d/100", []int{95, 90, 75, 50, 25}},
	{"how long a lock is believed (lease)", "locks/state.go", "t.Session != 0 && now < t.SentAt+lease", "t.Session != 0 && now < t.SentAt+lease*%d/100", []int{105, 110, 125, 150, 200, 300}},
	{"how long a published primary is followed (lease of the view)", "monitor/offer.go",
		"		o.deadline = s.servers[i].SentAt + s.timing.Lease\n		o.reason = fmt.Sprintf(\"published by", "		o.deadline = s.servers[i].SentAt + s.timing.Lease*%d/100\n		o.reason = fmt.Sprintf(\"published by", []int{105, 110, 125, 150, 200, 300}},
}

// searchBounds says for each bound by how much it can be missed until that shows.
func searchBounds(ctx context.Context, dir string, seeds int, only string) error {
	fmt.Println("| Time | Percent of it | Invariant | Runs | Seed |\n|---|---|---|---|---|")
	for _, b := range bounds {
		if !strings.Contains(b.name, only) {
			continue
		}
		for _, percent := range b.inPercent {
			rule, runs, seed, err := try(ctx, dir, mutant{b.name, b.file, b.from, fmt.Sprintf(b.to, percent)}, seeds)
			if err != nil {
				return fmt.Errorf("%s: %w", b.name, err)
			}
			if rule == "" {
				rule, runs = "not found", fmt.Sprint(seeds)
			}
			fmt.Printf("| %s | %d | %s | %s | %s |\n", b.name, percent, rule, runs, seed)
		}
	}
	return nil
}

var found = regexp.MustCompile(`run (\d+), seed (\d+): (\w+)`)

func main() {
	seeds := flag.Int("seeds", 2000, "runs after which a mutant counts as not found")
	only := flag.String("only", "", "only mutants whose rule contains this text")
	times := flag.Bool("bounds", false, "change times of the timing, not rules")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *seeds, *only, *times); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, seeds int, only string, times bool) error {
	dir, err := os.MkdirTemp("", "lockstep-mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if times {
		return searchBounds(ctx, dir, seeds, only)
	}
	missed := 0
	fmt.Println("| Rule that is broken | Invariant | Runs | Seed |\n|---|---|---|---|")
	for _, m := range mutants {
		if !strings.Contains(m.rule, only) {
			continue
		}
		rule, runs, seed, err := try(ctx, dir, m, seeds)
		if err != nil {
			return fmt.Errorf("%s: %w", m.rule, err)
		}
		if rule == "" {
			missed++
			rule, runs, seed = "not found", fmt.Sprint(seeds), ""
		}
		fmt.Printf("| %s | %s | %s | %s |\n", m.rule, rule, runs, seed)
	}
	if missed > 0 {
		return fmt.Errorf("%d mutants were not found", missed)
	}
	return nil
}

// try builds the simulation with one rule broken and runs it until that shows.
func try(ctx context.Context, dir string, m mutant, seeds int) (rule, runs, seed string, err error) {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return "", "", "", err
	}
	if strings.Count(string(text), m.from) != 1 {
		return "", "", "", fmt.Errorf("%s must contain this once: %s", m.file, m.from)
	}
	mutated := filepath.Join(dir, "mutated.go")
	if err := os.WriteFile(mutated, []byte(strings.Replace(string(text), m.from, m.to, 1)), 0o600); err != nil {
		return "", "", "", err
	}
	root, err := os.Getwd()
	if err != nil {
		return "", "", "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, m.file): mutated}})
	if err != nil {
		return "", "", "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		return "", "", "", err
	}
	binary := filepath.Join(dir, "sim.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, "./internal/sim")
	if out, err := build.CombinedOutput(); err != nil {
		return "", "", "", fmt.Errorf("%w: %s", err, out)
	}
	out, err := exec.CommandContext(ctx, binary, "-test.run", "^TestInvariants$", "-stop", "-seeds", fmt.Sprint(seeds)).CombinedOutput()
	if hit := found.FindSubmatch(out); hit != nil {
		return string(hit[3]), string(hit[1]), string(hit[2]), nil
	}
	if err != nil {
		return "", "", "", fmt.Errorf("%w: %s", err, out[max(0, len(out)-2000):])
	}
	return "", "", "", nil
}

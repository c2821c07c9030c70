package monitor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Brake bounds how many clusters may fail over automatically within a time. The
// monitors of one process share it: where many clusters seem to fail at once, it is
// rather their site, or this host, that has failed. Its zero value, and nil, bound
// nothing.
type Brake struct {
	mu     sync.Mutex
	limit  int
	within time.Duration
	at     map[string]time.Duration
}

// Set changes the limit, zero for none, and the time.
func (b *Brake) Set(limit int, within time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit, b.within = limit, within
}

// take counts an automatic failover of a cluster, or says why it must not begin. A
// cluster that has failed over counts once.
func (b *Brake) take(cluster string, now time.Duration) (refused string) {
	if b == nil {
		return ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.at, func(_ string, at time.Duration) bool { return now-at >= b.within })
	if _, again := b.at[cluster]; b.limit > 0 && !again && len(b.at) >= b.limit {
		others := slices.Sorted(maps.Keys(b.at))
		oldest := slices.Min(slices.Collect(maps.Values(b.at)))
		return fmt.Sprintf("%s failed over within the last %v, and max_failovers is %d: this cluster waits for another %v; acknowledge one of them with lockstepctl call ack, or start the failover by hand",
			strings.Join(others, ", "), b.within, b.limit, (oldest + b.within - now).Round(time.Second))
	}
	if b.at == nil {
		b.at = map[string]time.Duration{}
	}
	b.at[cluster] = now
	return ""
}

// release forgets the failover of a cluster: a person has seen it.
func (b *Brake) release(cluster string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.at, cluster)
}

// WithBrake has automatic failovers count against a limit that monitors share.
func WithBrake(b *Brake) Option { return func(m *Monitor) { m.brake = b } }

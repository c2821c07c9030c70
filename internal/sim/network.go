package sim

import (
	"math/rand/v2"
	"time"
)

// network says which hosts reach which, and how soon.
type network struct {
	c *cluster
	// drop is until when what a host sends to another is lost.
	drop map[[2]string]time.Duration
	// refuse is until when somebody answers in the place of a host with resets.
	refuse map[[2]string]time.Duration
	// reject is until when new connections are refused by a firewall, which is silent
	// on those that exist: they are to be cut too.
	reject map[[2]string]time.Duration
	// slow is until when answers to and from a host take long, and how long.
	slow map[string]slowness
	rng  *rand.Rand
}

type slowness struct {
	until time.Duration
	by    time.Duration
}

func newNetwork(c *cluster, rng *rand.Rand) *network {
	return &network{c: c, drop: map[[2]string]time.Duration{}, refuse: map[[2]string]time.Duration{}, reject: map[[2]string]time.Duration{}, slow: map[string]slowness{}, rng: rng}
}

// open reports whether what a sends arrives at b.
func (n *network) open(a, b *node) bool {
	k := [2]string{a.name, b.name}
	return !a.off && !b.off && n.drop[k] <= n.c.w.now && n.refuse[k] <= n.c.w.now
}

// refused reports whether somebody in between answers to a with resets for b.
func (n *network) refused(a, b *node) bool { return n.refuse[[2]string{a.name, b.name}] > n.c.w.now }

// rejected reports whether a firewall refuses new connections from a to b.
func (n *network) rejected(a, b *node) bool { return n.reject[[2]string{a.name, b.name}] > n.c.w.now }

// delay is how long a message takes to or from a host.
func (n *network) delay(host string) time.Duration {
	d := 200*time.Microsecond + time.Duration(n.rng.Int64N(int64(2*time.Millisecond)))
	if s := n.slow[host]; s.until > n.c.w.now {
		d += time.Duration(n.rng.Int64N(int64(s.by) + 1))
	}
	return d
}

func (n *network) cut(a, b string, until time.Duration) {
	n.drop[[2]string{a, b}] = max(n.drop[[2]string{a, b}], until)
}

func (n *network) heal() {
	clear(n.drop)
	clear(n.refuse)
	clear(n.reject)
	clear(n.slow)
}

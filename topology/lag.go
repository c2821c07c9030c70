package topology

import (
	"time"

	"github.com/lockstep-ha/lockstep/topology/gtid"
)

// Lag is how far a replica is behind.
type Lag struct {
	Known  bool
	Behind time.Duration
	// Source is "gtid" where it was measured from positions, else
	// "seconds_behind".
	Source string
}

// beats is how many positions of the primary are remembered.
const beats = 128

type beat struct {
	at  time.Duration
	pos gtid.Position
}

// LagTracker measures lag from GTID heartbeats: it remembers which position the
// primary had reached when, and a replica is behind by the age of the oldest
// position that it lacks. The resolution is one tick. It needs no heartbeat
// table, and works where Seconds_Behind_Master is NULL or says zero because the
// replica hears nothing.
//
// The zero value is ready. It is not safe for concurrent use.
type LagTracker struct {
	primary string
	ring    []beat
}

// Note records the position of the primary, which was sampled at an instant.
func (t *LagTracker) Note(primary string, pos gtid.Position, at time.Duration) {
	if primary != t.primary {
		t.primary, t.ring = primary, nil
	}
	if primary == "" || pos.IsEmpty() {
		return
	}
	if n := len(t.ring); n > 0 && t.ring[n-1].pos.Equal(pos) {
		return // nothing new: the beat that first showed it stands
	}
	if len(t.ring) == beats {
		t.ring = append(t.ring[:0], t.ring[beats/2:]...)
	}
	t.ring = append(t.ring, beat{at, pos})
}

// Measure returns the lag of a replica at an instant. A replica that has all of
// the newest position known lags by nothing.
func (t *LagTracker) Measure(s Server, now time.Duration) Lag {
	if len(t.ring) > 0 && s.Up() && !s.CurrentPos.IsEmpty() {
		for _, b := range t.ring {
			if !reached(s.CurrentPos, b.pos) {
				return Lag{Known: true, Behind: max(now-b.at, 0), Source: "gtid"}
			}
		}
		return Lag{Known: true, Source: "gtid"}
	}
	var worst Lag
	for _, r := range s.Replication {
		if r.SecondsBehind != Yes {
			return Lag{}
		}
		if d := time.Duration(r.Seconds) * time.Second; !worst.Known || d > worst.Behind {
			worst = Lag{Known: true, Behind: d, Source: "seconds_behind"}
		}
	}
	return worst
}

func reached(pos, target gtid.Position) bool {
	for g := range target.All() {
		if own, ok := pos.Get(g.Domain); !ok || own.Seq < g.Seq {
			return false
		}
	}
	return true
}

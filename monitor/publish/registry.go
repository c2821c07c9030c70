package publish

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/lockstep-ha/lockstep/election"
	"github.com/lockstep-ha/lockstep/monitor"
)

// Entry is what is written into service discovery for a cluster, as JSON under
// PREFIX/CLUSTER/primary. Beside it PREFIX/CLUSTER/address holds the address of the
// primary and nothing else, empty for none; both change at once.
type Entry struct {
	Cluster string `json:"cluster"`
	// Epoch grows with every change: of two entries the one with the higher epoch is
	// the newer.
	Epoch uint64 `json:"epoch"`
	// Primary is nil while no primary is offered.
	Primary *monitor.Endpoint `json:"primary"`
	// Monitor is the primary monitor that wrote it, Instance one run of it, Time when.
	Monitor  string    `json:"monitor"`
	Instance string    `json:"instance"`
	Time     time.Time `json:"time"`
}

// Store is a place for entries in which a write can depend on what was read.
type Store interface {
	// Name is the kind of the store, for logs and metrics.
	Name() string
	// Get returns the entry of a cluster and its version; version 0 stands for none.
	Get(ctx context.Context, cluster string) (value []byte, version uint64, err error)
	// Put writes an entry and the address if the version is still that one; written
	// is false if it is not.
	Put(ctx context.Context, cluster string, value []byte, address string, version uint64) (written bool, err error)
}

const (
	storeTime = 2 * time.Second
	// recheck is how often an entry is read again though nothing has changed, so that
	// what a store has lost comes back.
	recheck = 10 * time.Second
)

// Register keeps the entry of a cluster right until ctx ends, while the monitor is
// the primary monitor; otherwise it touches nothing. The entry stays when the
// monitor ends: the next primary monitor takes it over.
//
// What is written depends on what was read before the monitor made sure that it is
// still the primary monitor: one that stood still in between, or is late, loses to
// the entry of its successor.
func Register(ctx context.Context, src Source, store Store, log zerolog.Logger, counters *Counters) {
	r := registrar{instance: rand.Text(), src: src, store: store, log: log.With().Str("store", store.Name()).Logger(), counters: counters}
	each(ctx, src, func(v monitor.View) {
		if ctx.Err() == nil {
			r.look(ctx, v)
		}
	})
}

type registrar struct {
	instance string
	src      Source
	store    Store
	log      zerolog.Logger
	counters *Counters

	settled bool // what is in the store is what was wanted at
	at      time.Time
	wanted  string
	failing string
}

var errConflict = errors.New("another monitor wrote it in the meantime")

// may reports whether a view lets the monitor write.
func may(v monitor.View) bool { return v.Monitor.Role == election.Primary && v.Monitor.Primary }

func wish(v monitor.View) string {
	if v.Primary == nil {
		return ""
	}
	return v.Primary.Name + " " + v.Primary.Address
}

func (r *registrar) look(ctx context.Context, v monitor.View) {
	if !may(v) {
		r.settled = false
		return
	}
	if r.settled && r.wanted == wish(v) && time.Since(r.at) < recheck {
		return
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	written, e, err := r.write(bounded)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		r.settled = false
		outcome := "failed"
		if errors.Is(err, errConflict) {
			outcome = "conflict"
		}
		r.counters.stores.WithLabelValues(r.store.Name(), e.Cluster, outcome).Inc()
		if text := err.Error(); text != r.failing {
			r.log.Error().Str("event", "registry_failed").Str("cluster", e.Cluster).AnErr("error", err).Msg("the primary cannot be published; it is tried again")
			r.failing = text
		}
		return
	}
	if r.failing != "" {
		r.log.Info().Str("event", "registry_back").Str("cluster", e.Cluster).Msg("the primary can be published again")
	}
	r.settled, r.at, r.wanted, r.failing = true, began, wish(monitor.View{Primary: e.Primary}), ""
	if written {
		r.counters.stores.WithLabelValues(r.store.Name(), e.Cluster, "written").Inc()
		r.log.Info().Str("event", "registry_written").Str("cluster", e.Cluster).Uint64("epoch", e.Epoch).Str("primary", r.wanted).Msg("published")
	}
}

// write makes the entry what it should be.
func (r *registrar) write(ctx context.Context) (written bool, e Entry, err error) {
	cluster := r.src.View().Cluster
	raw, version, err := r.store.Get(ctx, cluster)
	if err != nil {
		return false, Entry{Cluster: cluster}, fmt.Errorf("read: %w", err)
	}
	// Only now: what is read before this look is what Put depends on.
	v := r.src.View()
	if !may(v) {
		return false, Entry{Cluster: cluster}, errors.New("this is not the primary monitor any more")
	}
	var was Entry
	readable := json.Unmarshal(raw, &was) == nil
	e = Entry{Cluster: cluster, Epoch: was.Epoch + 1, Primary: v.Primary, Monitor: v.Monitor.Name, Instance: r.instance, Time: time.Now().UTC()}
	if version != 0 && readable && was.Instance == r.instance && wish(monitor.View{Primary: was.Primary}) == wish(v) && was.Cluster == cluster {
		return false, was, nil
	}
	value, err := json.Marshal(e)
	if err != nil {
		return false, e, err
	}
	address := ""
	if e.Primary != nil {
		address = e.Primary.Address
	}
	if left := time.Duration(v.Monitor.LeaseLeftMS) * time.Millisecond; v.Monitor.Majority.Mode != election.None && left < storeTime {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	}
	ok, err := r.store.Put(ctx, cluster, value, address, version)
	switch {
	case err != nil:
		return false, e, fmt.Errorf("write: %w", err)
	case !ok:
		return false, e, errConflict
	}
	return true, e, nil
}

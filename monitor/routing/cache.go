package routing

import (
	"container/list"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Cache keeps results of Eventual reads for as long as they are not older than the
// level allows, the age that they had when they were read included. Callers that
// miss the same key at the same time share one read. It may be used from several
// goroutines; values are shared, so do not change them.
type Cache[T any] struct {
	r      *Router
	size   int
	flight singleflight.Group

	mu      sync.Mutex
	entries map[string]*list.Element
	order   list.List // of *entry[T], used last in front
}

type entry[T any] struct {
	key   string
	value T
	// fresh is the instant before which everything is in value.
	fresh time.Duration
}

// NewCache makes a cache of at most size results.
func NewCache[T any](r *Router, size int) (*Cache[T], error) {
	if size < 1 {
		return nil, fmt.Errorf("cache size is %d: it must be at least 1", size)
	}
	return &Cache[T]{r: r, size: size, entries: map[string]*list.Element{}}, nil
}

// Get returns the result under a key if what it holds was complete at most maxAge
// ago, else what load reads from a server that Eventual(maxAge) chooses. A result of
// a replica that lags is thus kept for less. load runs without the caller's
// cancellation, since others may wait for it too; a caller whose ctx ends does not
// wait. Errors are not kept.
func (c *Cache[T]) Get(ctx context.Context, key string, maxAge time.Duration, load func(context.Context, *sql.DB) (T, error)) (T, error) {
	var zero T
	if err := Eventual(maxAge).check(); err != nil {
		return zero, err
	}
	if v, ok := c.look(key, maxAge); ok {
		c.r.stats.cacheHits.Add(1)
		return v, nil
	}
	// Callers with different ages must not share a read: it might be too old for one.
	ch := c.flight.DoChan(fmt.Sprintf("%d|%s", maxAge, key), func() (any, error) {
		if v, ok := c.look(key, maxAge); ok {
			return v, nil
		}
		c.r.stats.cacheLoads.Add(1)
		return c.load(context.WithoutCancel(ctx), key, maxAge, load)
	})
	select {
	case <-ctx.Done():
		return zero, ctx.Err()
	case res := <-ch:
		if res.Shared {
			c.r.stats.shared.Add(1)
		}
		if res.Err != nil {
			return zero, res.Err
		}
		v, ok := res.Val.(T)
		if !ok {
			return zero, errors.New("the cache holds a value of another type")
		}
		return v, nil
	}
}

func (c *Cache[T]) load(ctx context.Context, key string, maxAge time.Duration, load func(context.Context, *sql.DB) (T, error)) (any, error) {
	began := Now()
	n, err := c.r.settle(ctx, Eventual(maxAge), call{})
	if err != nil {
		return nil, err
	}
	db, fresh := c.r.primary, began
	if n != nil {
		db = n.db()
		if fresh = c.r.freshOf(n); fresh == 0 {
			fresh = began - maxAge // nothing is known of it any more: do not keep it
		}
	}
	v, err := load(ctx, db)
	if err != nil {
		return nil, err
	}
	c.keep(key, v, fresh)
	return v, nil
}

// freshOf is the instant before which a replica has everything, zero for unknown.
func (r *Router) freshOf(n *Node) time.Duration {
	st := r.state.Load()
	for i, m := range st.nodes {
		if m == n && st.servers[i].FreshKnown {
			return st.servers[i].Fresh
		}
	}
	return 0
}

func (c *Cache[T]) look(key string, maxAge time.Duration) (T, bool) {
	var zero T
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.entries[key]
	if !ok {
		return zero, false
	}
	e, ok := el.Value.(*entry[T])
	if !ok || Now()-e.fresh > maxAge {
		return zero, false
	}
	c.order.MoveToFront(el)
	return e.value, true
}

func (c *Cache[T]) keep(key string, v T, fresh time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.entries[key]; ok {
		if e, ok := el.Value.(*entry[T]); ok && e.fresh > fresh {
			return
		}
		c.order.Remove(el)
	}
	c.entries[key] = c.order.PushFront(&entry[T]{key, v, fresh})
	for c.order.Len() > c.size {
		last := c.order.Back()
		if e, ok := c.order.Remove(last).(*entry[T]); ok {
			delete(c.entries, e.key)
		}
	}
}

// Forget drops what is kept under a key, after a write to it, say.
func (c *Cache[T]) Forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.entries[key]; ok {
		c.order.Remove(el)
		delete(c.entries, key)
	}
}

package integration

import (
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/internal/testdb"
	"github.com/lockstep-ha/lockstep/monitor/routing"
)

// BenchmarkRoutingQuery compares a query through a router with one through a bare
// *sql.DB of the same server.
func BenchmarkRoutingQuery(b *testing.B) {
	c, _, r := routed(b)
	primaryIs(b, r, "s1")
	plain, err := sql.Open("mysql", c.Servers[0].DSN(testdb.AppUser))
	require.NoError(b, err)
	defer func() { require.NoError(b, plain.Close()) }()
	for _, x := range []struct {
		name string
		db   *sql.DB
	}{{"bare", plain}, {"primary", r.Primary()}, {"any", r.DB(routing.Any)}} {
		b.Run(x.name, func(b *testing.B) {
			b.ReportAllocs()
			var n int
			for b.Loop() {
				if err := x.db.QueryRowContext(b.Context(), "SELECT 1").Scan(&n); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRoutingSpread reads from many goroutines and reports how unevenly the
// replicas were used.
func BenchmarkRoutingSpread(b *testing.B) {
	cl := semiSync(b, 3)
	m := start(b, configOf(cl))
	until(b, m, 10*time.Second, "s1 is offered", offers("s1"))
	for _, p := range []routing.Policy{routing.LeastOutstanding, routing.RoundRobin, routing.Random} {
		b.Run(string(p), func(b *testing.B) {
			r := router(b, routing.FromMonitor(m.Monitor), func(o *routing.Options) { o.Policy = p })
			primaryIs(b, r, "s1")
			db := r.DB(routing.Any)
			b.SetParallelism(8)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				var n int
				for pb.Next() {
					if err := db.QueryRowContext(b.Context(), "SELECT 1").Scan(&n); err != nil {
						b.Error(err)
						return
					}
				}
			})
			s := r.Stats().Servers
			least, most := min(s[1].Reads, s[2].Reads), max(s[1].Reads, s[2].Reads)
			b.ReportMetric(100*float64(most-least)/float64(most), "%uneven")
		})
	}
}

// BenchmarkRoutingResume measures, under load, the time from the view that names
// another primary to the first write on it, and what callers see meanwhile.
func BenchmarkRoutingResume(b *testing.B) {
	for _, hold := range []time.Duration{0, 10 * time.Second} {
		for _, workers := range []int{8, 64} {
			b.Run(fmt.Sprintf("hold=%v/workers=%d", hold, workers), func(b *testing.B) { resume(b, hold, workers) })
		}
	}
}

func resume(b *testing.B, hold time.Duration, workers int) {
	var moved atomic.Int64
	// Without semi-sync: the first commit would wait for a replica to follow.
	plain := testdb.NewCluster(b, 3, testdb.ClusterOptions{Server: testdb.Options{Operate: true}})
	c, m, r := routedOver(b, plain, holding(hold), func(o *routing.Options) {
		o.OnChange = func(name, _, _ string) {
			if name != "" {
				moved.Store(time.Now().UnixNano())
			}
		}
	})
	r.Primary().SetMaxOpenConns(workers)
	primaryIs(b, r, "s1")
	var mu sync.Mutex
	var took []time.Duration
	var errs atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var next atomic.Int64
	for range workers {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
				}
				if _, err := r.Primary().Exec("INSERT INTO orders VALUES (?, 1, @@server_id)", next.Add(1)); err != nil {
					errs.Add(1)
				} else if at := moved.Swap(0); at != 0 {
					mu.Lock()
					took = append(took, time.Since(time.Unix(0, at)))
					mu.Unlock()
				}
			}
		})
	}
	to, i := []string{"s2", "s1"}, 0
	moves := 0
	for b.Loop() {
		moved.Store(0)
		switchTo(b, m, to[i%2])
		primaryIs(b, r, to[i%2])
		old := to[(i+1)%2]
		until(b, m, 10*time.Second, "the old primary follows", replicates(old, to[i%2]))
		i, moves = i+1, moves+1
		time.Sleep(50 * time.Millisecond)
	}
	close(stop)
	wg.Wait()
	inSync(b, c, to[(i+1)%2])
	slices.Sort(took)
	require.NotEmpty(b, took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
	b.ReportMetric(float64(errs.Load())/float64(moves), "errors/move")
	b.ReportMetric(0, "ns/op")
}

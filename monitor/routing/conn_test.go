package routing

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

var (
	errReadOnly = &mysql.MySQLError{Number: codeOptionPrevents, Message: "The MariaDB server is running with the --read-only option so it cannot execute this statement"}
	errDeadlock = &mysql.MySQLError{Number: codeDeadlock, Message: "Deadlock found"}
)

// once fails the first statement that is named.
func once(query string, err error) func(string) error {
	var done atomic.Bool
	return func(q string) error {
		if q == query && !done.Swap(true) {
			return err
		}
		return nil
	}
}

func TestClassify(t *testing.T) {
	for err, want := range map[error]failure{
		nil:                      failNone,
		io.EOF:                   failLost,
		mysql.ErrInvalidConn:     failLost,
		driver.ErrBadConn:        failUnsent,
		context.Canceled:         failNone,
		context.DeadlineExceeded: failNone,
		errReadOnly:              failReadOnly,
		errDeadlock:              failNone,
		errors.New("x"):          failNone,
		&mysql.MySQLError{Number: codeReadOnlyMode}: failReadOnly,
		&mysql.MySQLError{Number: codeKilled}:       failLost,
		&mysql.MySQLError{Number: codeOptionPrevents, Message: "running with the --secure-file-priv option"}: failNone,
	} {
		require.Equal(t, want, classify(err), "%v", err)
	}
}

// TestStatementSentAgain: only what was certainly not carried out is.
func TestStatementSentAgain(t *testing.T) {
	t.Run("nothing was sent", func(t *testing.T) {
		b := newBed(t, 2)
		b.stubs["s1"].fail = once("W", driver.ErrBadConn)
		_, err := b.Primary().ExecContext(t.Context(), "W")
		require.NoError(t, err)
		require.Equal(t, 1, b.stubs["s1"].count("W"))
		require.Equal(t, uint64(1), b.Stats().Resent)
	})
	t.Run("the answer was lost", func(t *testing.T) {
		b := newBed(t, 2, func(o *Options) { o.HoldWrites = time.Second })
		b.stubs["s1"].fail = once("W", mysql.ErrInvalidConn)
		_, err := b.Primary().ExecContext(t.Context(), "W")
		require.ErrorIs(t, err, ErrPrimaryChanged)
		require.ErrorIs(t, err, ErrOutcomeUnknown)
		require.ErrorIs(t, err, mysql.ErrInvalidConn)
		require.NotErrorIs(t, err, driver.ErrBadConn)
		require.Zero(t, b.stubs["s1"].count("W"))
	})
	t.Run("read-only, not held", func(t *testing.T) {
		b := newBed(t, 2)
		b.stubs["s1"].fail = once("W", errReadOnly)
		_, err := b.Primary().ExecContext(t.Context(), "W")
		require.ErrorIs(t, err, ErrPrimaryChanged)
		require.NotErrorIs(t, err, ErrOutcomeUnknown)
	})
	t.Run("read-only, held until another is the primary", func(t *testing.T) {
		b := newBed(t, 2, func(o *Options) { o.HoldWrites = 10 * time.Second })
		b.stubs["s1"].fail = func(q string) error {
			b.stubs["s1"].check = []driver.Value{int64(1), "10.11.19-MariaDB", int64(7), int64(7)}
			return errReadOnly
		}
		done := make(chan error)
		go func() {
			_, err := b.Primary().ExecContext(context.Background(), "W")
			done <- err
		}()
		require.Eventually(t, func() bool { return b.Stats().Refused > 0 }, 5*time.Second, time.Millisecond)
		b.primary("s2")
		require.NoError(t, <-done)
		require.Equal(t, 1, b.stubs["s2"].count("W"))
		require.Zero(t, b.Stats().HeldNow)
	})
	t.Run("not the first on its connection", func(t *testing.T) {
		b := newBed(t, 2, func(o *Options) { o.HoldWrites = time.Second })
		conn, err := b.Primary().Conn(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		_, err = conn.ExecContext(t.Context(), "SET @x = 1")
		require.NoError(t, err)
		b.stubs["s1"].failing(once("W", errReadOnly))
		_, err = conn.ExecContext(t.Context(), "W")
		require.ErrorIs(t, err, ErrPrimaryChanged, "the session's state is not on another server")
	})
	t.Run("nor is what was not even sent, to another server", func(t *testing.T) {
		b := newBed(t, 2)
		conn, err := b.Primary().Conn(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		_, err = conn.ExecContext(t.Context(), "SET @x = 1")
		require.NoError(t, err)
		b.stubs["s1"].failing(once("W", driver.ErrBadConn))
		_, err = conn.ExecContext(t.Context(), "W")
		require.ErrorIs(t, err, ErrPrimaryChanged)
		require.NotErrorIs(t, err, ErrOutcomeUnknown)
		require.NotErrorIs(t, err, driver.ErrBadConn, "database/sql would act on it")
		require.Zero(t, b.stubs["s1"].count("W"))
	})
	t.Run("a read goes to another replica", func(t *testing.T) {
		b := newBed(t, 3)
		b.stubs["s2"].fail = func(string) error { return mysql.ErrInvalidConn }
		for range 10 {
			require.Equal(t, "s3", b.where(t.Context(), Any))
		}
		require.Equal(t, uint64(1), b.Stats().CircuitsOpened)
	})
	t.Run("the last resort of a read is the primary", func(t *testing.T) {
		b := newBed(t, 3)
		b.stubs["s2"].dialErr, b.stubs["s3"].dialErr = io.EOF, io.EOF
		require.Equal(t, "s1", b.where(t.Context(), Any))
		b = newBed(t, 2, func(o *Options) { o.NoFallback = true })
		b.stubs["s2"].dialErr = io.EOF
		err := b.DB(Any).QueryRowContext(t.Context(), "WHO").Scan(new(string))
		require.ErrorIs(t, err, ErrNoReplica)
		require.ErrorIs(t, err, io.EOF)
	})
}

func TestTransactions(t *testing.T) {
	write := func(tx *sql.Tx) error {
		_, err := tx.Exec("W")
		return err
	}
	t.Run("a lost commit is not repeated", func(t *testing.T) {
		b := newBed(t, 2)
		b.stubs["s1"].fail = once("COMMIT", mysql.ErrInvalidConn)
		err := b.Retry(t.Context(), write)
		require.ErrorIs(t, err, ErrOutcomeUnknown)
		require.ErrorIs(t, err, ErrPrimaryChanged)
		require.Equal(t, 1, b.stubs["s1"].count("W"))
		require.Equal(t, uint64(1), b.Stats().OutcomesUnknown)
	})
	t.Run("unless told", func(t *testing.T) {
		b := newBed(t, 2)
		b.stubs["s1"].fail = once("COMMIT", mysql.ErrInvalidConn)
		require.NoError(t, b.Retry(t.Context(), write, RetryUnknown()))
		require.Equal(t, 2, b.stubs["s1"].count("W"))
	})
	t.Run("a commit that was not sent is", func(t *testing.T) {
		b := newBed(t, 2)
		b.stubs["s1"].fail = once("COMMIT", driver.ErrBadConn)
		require.NoError(t, b.Retry(t.Context(), write))
		require.Equal(t, 1, b.stubs["s1"].count("COMMIT"))
	})
	for name, failure := range map[string]error{"read-only": errReadOnly, "deadlock": errDeadlock} {
		t.Run("a refused commit is repeated: "+name, func(t *testing.T) {
			b := newBed(t, 2)
			b.stubs["s1"].fail = once("COMMIT", failure)
			require.NoError(t, b.Retry(t.Context(), write))
			require.Equal(t, 1, b.stubs["s1"].count("COMMIT"))
			require.Equal(t, uint64(1), b.Stats().Retries)
		})
	}
	t.Run("a statement lost inside is no unknown outcome", func(t *testing.T) {
		b := newBed(t, 2)
		b.stubs["s1"].fail = once("W", mysql.ErrInvalidConn)
		require.NoError(t, b.Retry(t.Context(), write))
		require.Equal(t, 1, b.stubs["s1"].count("W"))
		require.Zero(t, b.Stats().OutcomesUnknown)
	})
	t.Run("an error of the function's own ends it", func(t *testing.T) {
		b := newBed(t, 2)
		own := errors.New("no such order")
		require.Equal(t, own, b.Retry(t.Context(), func(*sql.Tx) error { return own }))
		require.Equal(t, 1, b.stubs["s1"].count("ROLLBACK"))
	})
	t.Run("a panic rolls back", func(t *testing.T) {
		b := newBed(t, 2)
		require.Panics(t, func() { _ = b.Retry(t.Context(), func(*sql.Tx) error { panic("x") }) })
		require.Equal(t, 1, b.stubs["s1"].count("ROLLBACK"))
	})
	t.Run("it gives up", func(t *testing.T) {
		b := newBed(t, 2, func(o *Options) { o.Retries = 3 })
		b.stubs["s1"].fail = func(q string) error {
			if q == "COMMIT" {
				return errDeadlock
			}
			return nil
		}
		require.ErrorIs(t, b.Retry(t.Context(), write), errDeadlock)
		require.Equal(t, 4, b.stubs["s1"].count("W"))
	})
	t.Run("nothing is committed on a server that is the primary no more", func(t *testing.T) {
		b := newBed(t, 2)
		tx, err := b.Primary().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.Exec("W")
		require.NoError(t, err)
		b.primary("s2")
		_, err = tx.Exec("W2")
		require.ErrorIs(t, err, ErrPrimaryChanged)
		require.ErrorIs(t, tx.Commit(), ErrPrimaryChanged)
		require.Zero(t, b.stubs["s1"].count("COMMIT"))
		require.Zero(t, b.stubs["s1"].count("W2"))
		// Not even when it is the primary again: it was not in between.
		b.primary("s1")
		tx, err = b.Primary().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		b.primary("s2")
		b.primary("s1")
		require.ErrorIs(t, tx.Commit(), ErrPrimaryChanged)
		require.Zero(t, b.stubs["s1"].count("COMMIT"))
	})
	t.Run("it waits while there is none, and goes on on the same server", func(t *testing.T) {
		b := newBed(t, 2, func(o *Options) { o.HoldWrites = 10 * time.Second })
		tx, err := b.Primary().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		b.view.Primary = ""
		b.show()
		done := make(chan error)
		go func() { done <- tx.Commit() }()
		select {
		case err := <-done:
			t.Fatalf("committed without a primary: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		b.primary("s1")
		require.NoError(t, <-done)
	})
}

func TestHolding(t *testing.T) {
	none := func(b *bed) {
		b.view.Primary, b.view.Reason = "", "nobody is chosen"
		b.show()
	}
	t.Run("off", func(t *testing.T) {
		b := newBed(t, 2)
		none(b)
		_, err := b.Primary().ExecContext(t.Context(), "W")
		require.ErrorIs(t, err, ErrNoPrimary)
		require.EqualError(t, err, "no primary: nobody is chosen")
	})
	t.Run("in vain", func(t *testing.T) {
		b := newBed(t, 2, func(o *Options) { o.HoldWrites = 30 * time.Millisecond })
		none(b)
		_, err := b.Primary().ExecContext(t.Context(), "W")
		require.EqualError(t, err, "no primary within 30ms: nobody is chosen")
		require.Equal(t, uint64(1), b.Stats().HoldTimeouts)
	})
	t.Run("the caller's context ends it", func(t *testing.T) {
		b := newBed(t, 2, func(o *Options) { o.HoldWrites = time.Hour })
		none(b)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := b.Primary().ExecContext(ctx, "W")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrNoPrimary)
	})
	t.Run("many, with a bound", func(t *testing.T) {
		b := newBed(t, 2, func(o *Options) { o.HoldWrites = time.Hour; o.MaxHeld = 20 })
		none(b)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				_, err := b.Primary().ExecContext(context.Background(), "W")
				if err != nil {
					t.Errorf("held: %v", err)
				}
			})
		}
		require.Eventually(t, func() bool { return b.Stats().HeldNow == 20 }, 5*time.Second, time.Millisecond)
		_, err := b.Primary().ExecContext(t.Context(), "W")
		require.ErrorIs(t, err, ErrNoPrimary)
		require.ErrorContains(t, err, "20 wait for one already")
		b.primary("s2")
		wg.Wait()
		require.Equal(t, 20, b.stubs["s2"].count("W"))
	})
	t.Run("a wrong password is not waited for", func(t *testing.T) {
		b := newBed(t, 2, func(o *Options) { o.HoldWrites = time.Hour })
		b.stubs["s1"].dialErr = &mysql.MySQLError{Number: 1045, Message: "Access denied"}
		_, err := b.Primary().ExecContext(t.Context(), "W")
		require.ErrorContains(t, err, "Access denied")
	})
}

func TestTracker(t *testing.T) {
	b := newBed(t, 3)
	all := b.DB(Any)
	tr := NewTracker(Token{})
	ctx := WithTracker(t.Context(), tr)
	_, err := all.ExecContext(ctx, "W")
	require.NoError(t, err)
	require.Equal(t, "m:0-1-42", tr.Token().String())

	// Nobody is known to have it: one is waited for, and remembered.
	require.NotEqual(t, "s1", b.where(ctx, Any))
	require.Equal(t, uint64(1), b.Stats().Waits)
	first := b.where(ctx, Any)
	require.Equal(t, first, b.where(ctx, Any))
	require.Equal(t, uint64(1), b.Stats().Waits)

	// In vain: the primary, and the replicas are left alone for a while.
	b.stubs["s2"].wait, b.stubs["s3"].wait = -1, -1
	ctx = WithToken(t.Context(), mariaToken(t, "0-1-43"))
	for range 5 {
		require.Equal(t, "s1", b.where(ctx, Any))
	}
	require.Equal(t, uint64(2), b.Stats().WaitTimeouts)
	// Until the view shows that one has it.
	b.position("s3", "0-1-43")
	b.show()
	require.Equal(t, "s3", b.where(ctx, Any.Within(-1)))

	// A write whose token cannot be read makes the client read from the primary.
	b.stubs["s1"].failing(once("SELECT @@last_gtid", mysql.ErrInvalidConn))
	_, err = all.ExecContext(WithTracker(t.Context(), tr), "W")
	require.NoError(t, err)
	require.True(t, tr.Strong())
	require.Equal(t, "s1", b.where(WithTracker(t.Context(), tr), Any))

	// In a transaction the token is read after the commit.
	tr = NewTracker(Token{})
	tx, err := all.BeginTx(WithTracker(t.Context(), tr), nil)
	require.NoError(t, err)
	_, err = tx.Exec("W")
	require.NoError(t, err)
	require.True(t, tr.Token().IsEmpty())
	require.NoError(t, tx.Commit())
	require.False(t, tr.Token().IsEmpty())
	token, err := b.Write(t.Context(), func(tx *sql.Tx) error { _, err := tx.Exec("W"); return err })
	require.NoError(t, err)
	require.Equal(t, tr.Token(), token)
}

func TestRefusedConnections(t *testing.T) {
	for why, says := range map[string][]driver.Value{
		"it is read-only":                {int64(1), "10.11-MariaDB", int64(7), int64(7)},
		"nobody holds its primary lock":  {int64(0), "10.11-MariaDB", nil, int64(7)},
		"not held by the same":           {int64(0), "10.11-MariaDB", int64(7), int64(8)},
		"ask for its primary lock":       {int64(0)},
		"did not say who holds its lock": {int64(0), "10.11-MariaDB"},
	} {
		b := newBed(t, 2)
		b.stubs["s1"].check = says
		_, err := b.Primary().ExecContext(t.Context(), "W")
		require.ErrorIs(t, err, ErrNoPrimary)
		require.ErrorContains(t, err, why)
		require.Zero(t, b.stubs["s1"].count("W"))
	}
	b := newBed(t, 2, func(o *Options) { o.NoLockCheck = true })
	b.stubs["s1"].check = []driver.Value{"OFF", "10.11-MariaDB"}
	_, err := b.Primary().ExecContext(t.Context(), "W")
	require.NoError(t, err)
}

func TestPinnedAndHedged(t *testing.T) {
	b := newBed(t, 3, func(o *Options) { o.Policy = RoundRobin })
	db, err := b.Replica(t.Context(), Any)
	require.NoError(t, err)
	var first, again string
	require.NoError(t, db.QueryRow("WHO").Scan(&first))
	for range 5 {
		require.NoError(t, db.QueryRow("WHO").Scan(&again))
		require.Equal(t, first, again)
	}
	db, err = b.Replica(t.Context(), Strong)
	require.NoError(t, err)
	require.Same(t, b.Primary(), db)
	_, err = b.Replica(t.Context(), Eventual(0))
	require.ErrorContains(t, err, "must be more than zero")

	slow := make(chan struct{})
	defer close(slow)
	var calls atomic.Int32
	got, err := Hedge(t.Context(), b.Router, Any, time.Millisecond, func(ctx context.Context, db *sql.DB) (string, error) {
		if calls.Add(1) == 1 {
			select {
			case <-slow:
			case <-ctx.Done():
			}
			return "", ctx.Err()
		}
		var s string
		return s, db.QueryRowContext(ctx, "WHO").Scan(&s)
	})
	require.NoError(t, err)
	require.Equal(t, int32(2), calls.Load())
	_ = got
	boom := errors.New("boom")
	_, err = Hedge(t.Context(), b.Router, Any, time.Hour, func(context.Context, *sql.DB) (int, error) { return 0, boom })
	require.ErrorIs(t, err, boom)
}

func TestClose(t *testing.T) {
	b := newBed(t, 2, func(o *Options) { o.HoldWrites = time.Hour })
	db := b.DB(Any)
	b.view.Primary = ""
	b.show()
	held := make(chan error)
	go func() {
		_, err := b.Primary().ExecContext(context.Background(), "W")
		held <- err
	}()
	require.Eventually(t, func() bool { return b.Stats().HeldNow == 1 }, 5*time.Second, time.Millisecond)
	require.NoError(t, b.Close())
	require.Error(t, <-held)
	require.Error(t, db.Ping())
	_, err := b.Connector(Any).Connect(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, b.Ready(t.Context()), ErrClosed)
	require.NoError(t, b.Close())
}

// Command httpcookie is a web service whose users see what they wrote, though reads
// go to replicas: a cookie carries what each has written.
//
//	httpcookie -lockstepd http://10.0.0.1:8990 -dsn 'app:secret@/app'
//	curl -c jar -b jar -d 'text=hello' http://localhost:8080/notes
//	curl -c jar -b jar http://localhost:8080/notes
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/lockstep-ha/lockstep/monitor/routing"
)

func main() {
	url := flag.String("lockstepd", "http://127.0.0.1:8990", "URL of lockstepd")
	dsn := flag.String("dsn", "app:secret@/app", "account and database, without an address")
	listen := flag.String("listen", "127.0.0.1:8080", "address to listen at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *url, *dsn, *listen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, dsn, listen string) error {
	source, err := routing.FromURL(routing.URLConfig{URLs: []string{url}})
	if err != nil {
		return err
	}
	r, err := routing.Open(source, routing.Options{DSN: dsn, HoldWrites: 5 * time.Second, TokenKey: []byte(os.Getenv("TOKEN_KEY"))})
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	server := &http.Server{Addr: listen, Handler: service(r), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// service knows nothing of servers: it has one handle, and the context of each
// request.
func service(r *routing.Router) http.Handler {
	db := r.DB(routing.Eventual(10 * time.Second))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /notes", func(w http.ResponseWriter, req *http.Request) {
		if _, err := db.ExecContext(req.Context(), "INSERT INTO notes (text) VALUES (?)", req.FormValue("text")); err != nil {
			fail(w, err)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
	mux.HandleFunc("GET /notes", func(w http.ResponseWriter, req *http.Request) {
		rows, err := db.QueryContext(req.Context(), "SELECT text FROM notes ORDER BY id")
		if err != nil {
			fail(w, err)
			return
		}
		defer func() { _ = rows.Close() }()
		notes := []string{}
		for rows.Next() {
			var text string
			if err := rows.Scan(&text); err != nil {
				fail(w, err)
				return
			}
			notes = append(notes, text)
		}
		if err := rows.Err(); err != nil {
			fail(w, err)
			return
		}
		_ = json.NewEncoder(w).Encode(notes) // the client is gone if this fails
	})
	return readYourWrites(r, mux)
}

func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	if errors.Is(err, routing.ErrNoPrimary) || errors.Is(err, routing.ErrPrimaryChanged) {
		status = http.StatusServiceUnavailable
	}
	http.Error(w, http.StatusText(status), status)
}

// Names of the cookies.
const (
	cookieToken  = "written"
	cookieStrong = "strong"
)

// readYourWrites gives each request a tracker, which starts with what the cookie
// says, and sets the cookie to what was written.
func readYourWrites(r *routing.Router, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var before routing.Token
		if c, err := req.Cookie(cookieToken); err == nil {
			// Whatever the client made of it: what is no token counts as none.
			before, _ = r.ParseToken(c.Value)
		}
		tracker := routing.NewTracker(before)
		ctx := routing.WithTracker(req.Context(), tracker)
		if _, err := req.Cookie(cookieStrong); err == nil {
			ctx = routing.WithLevel(ctx, routing.Strong)
		}
		next.ServeHTTP(&cookieWriter{ResponseWriter: w, cookie: func() {
			if t := tracker.Token(); !t.Equal(before) {
				setCookie(w, cookieToken, r.FormatToken(t), time.Hour)
			}
			if tracker.Strong() { // a write whose token got lost: read from the primary for a while
				setCookie(w, cookieStrong, "1", 10*time.Second)
			}
		}}, req.WithContext(ctx))
	})
}

func setCookie(w http.ResponseWriter, name, value string, age time.Duration) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: int(age.Seconds()), HttpOnly: true, SameSite: http.SameSiteLaxMode})
}

// cookieWriter calls cookie before the header is sent.
type cookieWriter struct {
	http.ResponseWriter
	cookie func()
	sent   bool
}

// WriteHeader implements http.ResponseWriter.
func (w *cookieWriter) WriteHeader(status int) {
	if !w.sent {
		w.sent = true
		w.cookie()
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *cookieWriter) Write(b []byte) (int, error) {
	if !w.sent {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

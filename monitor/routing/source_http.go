package routing

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstep-ha/lockstep/monitor"
)

// URLConfig says how to follow a cluster through lockstepd.
type URLConfig struct {
	// URLs are the daemons, such as http://10.0.0.1:8990: the first that answers is
	// used until it does not.
	URLs []string
	// Cluster is the name of the cluster; "main" when empty.
	Cluster string
	// Client is the HTTP client; one without a proxy when nil. Its Timeout must be
	// zero: the stream of events has no end.
	Client *http.Client
	// Poll is how often the view is asked for; zero for 500 ms. It is asked for at
	// once, too, when the daemon's stream of events says that it has changed.
	Poll time.Duration
	// Timeout bounds one request; zero for 2 s.
	Timeout time.Duration
	// OnError is called, if set, with what keeps the view from being got.
	OnError func(error)
}

// Limits of the HTTP source.
const (
	defaultPoll        = 500 * time.Millisecond
	minPoll            = 10 * time.Millisecond
	defaultHTTPTimeout = 2 * time.Second
	maxViewBytes       = 16 << 20
	maxEventLine       = 64 << 10
	// streamAgain is when a daemon without a stream is asked for one again.
	streamAgain = time.Minute
)

// httpSource polls lockstepd, and lets its stream of events hurry it.
type httpSource struct {
	cfg  URLConfig
	wake chan struct{}
	// at is the index of the URL in use.
	at atomic.Int32
}

// FromURL takes the view from lockstepd. A view is believed for as long as the
// daemon says, counted from before it was asked for: how long an answer was under
// way does not matter. Events only make it ask again, since nobody can say how old
// an event is when it arrives.
func FromURL(cfg URLConfig) (Source, error) {
	if len(cfg.URLs) == 0 {
		return nil, errors.New("routing: no URL of lockstepd: give at least one, like http://10.0.0.1:8990")
	}
	urls := make([]string, len(cfg.URLs))
	for i, text := range cfg.URLs {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.RawQuery != "" {
			return nil, fmt.Errorf("routing: %q is no URL of lockstepd: give one like http://10.0.0.1:8990", text)
		}
		urls[i] = strings.TrimRight(text, "/")
	}
	cfg.URLs = urls
	if cfg.Cluster == "" {
		cfg.Cluster = "main"
	}
	if cfg.Poll == 0 {
		cfg.Poll = defaultPoll
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultHTTPTimeout
	}
	switch {
	case cfg.Poll < minPoll:
		return nil, fmt.Errorf("routing: Poll is %v: it must be at least %v", cfg.Poll, minPoll)
	case cfg.Timeout < 0:
		return nil, fmt.Errorf("routing: Timeout is %v: it must be more than zero", cfg.Timeout)
	}
	if cfg.Client == nil {
		cfg.Client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute}}
	}
	if cfg.OnError == nil {
		cfg.OnError = func(error) {}
	}
	return &httpSource{cfg: cfg, wake: make(chan struct{}, 1)}, nil
}

// Hurry implements Hurrier.
func (s *httpSource) Hurry() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Watch implements Source.
func (s *httpSource) Watch(ctx context.Context, publish func(View)) {
	streamed := make(chan struct{})
	go func() {
		defer close(streamed)
		s.stream(ctx)
	}()
	defer func() { <-streamed }()
	var memory freshness
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.wake:
		}
		wait := s.cfg.Poll
		if v, ok := s.ask(ctx, &memory); ok {
			publish(v)
			if v.Primary != "" { // in time to renew it, were the daemon slow
				wait = max(min(wait, (v.Until-Now())/3), minPoll)
			}
		}
		timer.Reset(wait)
	}
}

// ask gets the view from the daemon in use, or from the next that answers.
func (s *httpSource) ask(ctx context.Context, memory *freshness) (View, bool) {
	first := int(s.at.Load())
	for i := range s.cfg.URLs {
		k := (first + i) % len(s.cfg.URLs)
		at := Now()
		v, err := s.get(ctx, s.cfg.URLs[k])
		if err == nil {
			s.at.Store(int32(k))
			return memory.convert(v, at), true
		}
		if ctx.Err() != nil {
			return View{}, false
		}
		s.cfg.OnError(err)
	}
	return View{}, false
}

func (s *httpSource) path(base string) string {
	return base + "/v1/clusters/" + url.PathEscape(s.cfg.Cluster)
}

func (s *httpSource) get(ctx context.Context, base string) (v monitor.View, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	where := s.path(base)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return v, err
	}
	res, err := s.cfg.Client.Do(req)
	if err != nil {
		return v, err
	}
	defer func() { _ = res.Body.Close() }()
	body := io.LimitReader(res.Body, maxViewBytes)
	if res.StatusCode != http.StatusOK {
		var p struct {
			Error string `json:"error"`
		}
		// The status says enough where the body says nothing.
		_ = json.NewDecoder(body).Decode(&p)
		return v, fmt.Errorf("get %s: %s: %s", where, res.Status, p.Error)
	}
	if err := json.NewDecoder(body).Decode(&v); err != nil {
		return v, fmt.Errorf("get %s: %w", where, err)
	}
	if v.Cluster != s.cfg.Cluster {
		return v, fmt.Errorf("get %s: the answer is about cluster %q", where, v.Cluster)
	}
	return v, nil
}

// stream follows the events of the daemon in use, and hurries the poll at each.
func (s *httpSource) stream(ctx context.Context) {
	for ctx.Err() == nil {
		pause := s.cfg.Poll
		if supported := s.follow(ctx, s.cfg.URLs[s.at.Load()]); !supported {
			pause = streamAgain
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

// follow reads one stream to its end; it returns false where there is none.
func (s *httpSource) follow(ctx context.Context, base string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.path(base)+"/events", nil)
	if err != nil {
		return false
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := s.cfg.Client.Do(req)
	if err != nil {
		return true // the poll says what is wrong
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		return res.StatusCode >= http.StatusInternalServerError
	}
	lines := bufio.NewReaderSize(res.Body, maxEventLine)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return true
		}
		if strings.HasPrefix(string(line[:min(len(line), len(eventMark))]), eventMark) {
			s.Hurry()
		}
	}
}

// eventMark begins the line that names an event, which comes before or after its
// data: a view is asked for when it is seen, whatever it holds.
const eventMark = "event: view"

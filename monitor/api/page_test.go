package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

func TestPageIsStrict(t *testing.T) {
	h := newRouter(newAPI(fakes(shop()), WithAuth(testAuth())))
	for path, kind := range map[string]string{"/": "text/html", "/page/app.js": "text/javascript", "/page/style.css": "text/css"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, http.StatusOK, w.Code)
		require.True(t, strings.HasPrefix(w.Header().Get("Content-Type"), kind), w.Header().Get("Content-Type"))
		csp := w.Header().Get("Content-Security-Policy")
		require.Contains(t, csp, "default-src 'none'")
		require.NotContains(t, csp, "unsafe")
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		text := w.Body.String()
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://", "style="} {
			require.NotContains(t, strings.ReplaceAll(text, "http://www.w3.org/2000/svg", ""), bad, path)
		}
		require.NotRegexp(t, `<script>|\son[a-z]+=`, text)
	}
}

// browser starts Chromium, or skips the test where it is not installed.
func browser(t *testing.T) *window {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil && path == "" {
			path = p
		}
	}
	if path == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("Chromium is not installed: apt-get install chromium")
		}
		t.Skip("SKIPPED: the web page is not tested, since Chromium is not installed (apt-get install chromium)")
	}
	alloc, stop := chromedp.NewExecAllocator(t.Context(), append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()))...)
	t.Cleanup(stop)
	tab, cancel := chromedp.NewContext(alloc)
	t.Cleanup(cancel)
	p := &window{t: t, ctx: tab}
	messages := chromedp.Console(tab)
	p.do(chromedp.Navigate("about:blank"))
	read := make(chan struct{})
	go func() {
		defer close(read)
		for m, err := range messages {
			if err != nil {
				return
			}
			p.mu.Lock()
			p.console = append(p.console, m.String()+" "+m.URL)
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-read })
	return p
}

// window is a page in a browser.
type window struct {
	t   *testing.T
	ctx context.Context

	mu      sync.Mutex
	console []string
}

// do carries actions out, for at most half a minute.
func (w *window) do(actions ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	for _, a := range actions {
		ended := make(chan error, 1)
		go func() { ended <- chromedp.Do(w.ctx, a) }()
		select {
		case err := <-ended:
			require.NoError(w.t, err)
		case <-time.After(30 * time.Second):
			w.t.Fatal("the browser does not do what it should")
		}
	}
}

func (w *window) click(id string) {
	w.t.Helper()
	w.do(chromedp.Click("#" + id))
}

// is waits until an expression is true.
func (w *window) is(expression string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		ok, err := chromedp.Run(w.ctx, chromedp.Evaluate[bool](expression))
		return err == nil && ok
	}, 20*time.Second, 20*time.Millisecond, expression)
}

// says waits until an element has a text.
func (w *window) says(id, want string) {
	w.t.Helper()
	w.is("document.getElementById('" + id + "').textContent.includes(" + strconv.Quote(want) + ")")
}

func (w *window) hidden(id string, want bool) {
	w.t.Helper()
	w.is(fmt.Sprintf("document.getElementById('%s').hidden === %v", id, want))
}

func TestPage(t *testing.T) {
	w := browser(t)
	f := busy()
	const evil = `<img src=x onerror="window.evil=1"><script>window.evil=1</script>`
	f.view.Servers[1].Source, f.view.Servers[2].Source, f.view.Servers[6].Source = "s1", "s1", "s2"
	f.view.Servers[2].Version, f.view.Servers[5].Detail, f.view.Servers[1].Site = evil, evil, evil
	f.view.Servers[0].LockOwner = &monitor.OwnerView{Self: true}
	f.view.Servers[0].PrimaryLockOwner = &monitor.OwnerView{Self: true}
	f.view.Servers[1].LockOwner = &monitor.OwnerView{User: evil, Host: "10.1.1.1:4567", Kind: "lockstep"}
	f.view.Servers[1].CurrentPos = strings.Repeat("0-1-123456,", 40)
	f.view.Operations.Running = nil
	f.view.Faults[0].Text, f.view.Notes = evil, []string{evil}
	f.view.Monitor.Timing.IntervalMS = 200
	f.ops = []operation.Record{{ID: "1", Kind: operation.Failover, From: "s9", To: "s1", Outcome: "done", Detail: evil, StartedAt: time.Now()}}
	f.reply = monitor.Reply{Text: "plan: " + evil, Plan: &operation.Plan{To: "s2"}}
	server := listenAndServe(t, newAPI(fakes(f)))

	w.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile, chromedp.EmulateScale(2)), chromedp.Navigate(server.URL+"/"))
	for _, want := range [][2]string{{"primary", "★ s1 (10.0.0.1:3306)"}, {"valid", "to be believed for"}, {"role", "primary monitor"}, {"link", "live"},
		{"timeline", "failover from s9 to s1"}, {"topology", "Lagging"}, {"faults", "not_joined"}, {"servers", "0.2 s"},
		{"locks", "m1 (this monitor)VP––"}, {"locks", "@10.1.1.1–V–"}} {
		w.says(want[0], want[1])
	}
	w.is("document.scrollingElement.scrollWidth <= innerWidth && innerWidth === 360")
	w.shot("phone")

	// The plan is shown before anything is done, and what was shown is done.
	w.click("plan")
	w.says("plan-text", "plan: <img")
	w.says("confirm", "Switch over to s2 now")
	require.Equal(t, []monitor.Command{{Action: monitor.ActSwitchover, DryRun: true}}, f.given())
	w.click("cancel")
	w.hidden("confirm", true)
	w.click("plan")
	w.hidden("confirm", false)
	w.click("confirm")
	w.hidden("confirm", true)
	require.Eventually(t, func() bool { return len(f.given()) == 3 }, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, monitor.Command{Action: monitor.ActSwitchover, Server: "s2"}, f.given()[2])
	f.mu.Lock()
	f.err = &operation.RefusedError{Kind: operation.Switchover, Refusals: []operation.Refusal{{Text: "no " + evil, Remedy: "wait"}}}
	f.mu.Unlock()
	w.click("plan")
	w.says("plan-error", "(wait)")

	// It follows the view, and fails closed.
	f.set(func(v *monitor.View) { v.Primary, v.Reason = nil, "all gone" })
	w.says("primary", "✖ none")
	w.says("reason", "all gone")
	w.says("timeline", "primary: s1 → none")
	f.set(func(v *monitor.View) { v.Primary, v.ValidForMS = &monitor.Endpoint{Name: "s2"}, 60_000 })
	w.says("primary", "★ s2")
	w.shot("wide")
	w.mu.Lock()
	for _, line := range w.console {
		require.Regexp(t, "409|favicon|^debug:", line, "the refused command, and nothing else, is a problem to the browser")
	}
	w.mu.Unlock()
	f.set(func(v *monitor.View) { v.ValidForMS = 900 })
	w.says("valid", "for 0.")
	server.CloseClientConnections()
	server.Close()
	w.says("link", "not connected")
	w.says("primary", "✖ none")
	w.says("reason", "expired")
	w.is("window.evil === undefined && document.images.length === 0 && document.scripts.length === 1")
}

// With tokens the page asks for one.
func TestPageLogin(t *testing.T) {
	w := browser(t)
	f := shop()
	server := listenAndServe(t, newAPI(fakes(f), WithAuth(testAuth())))
	w.do(chromedp.Navigate(server.URL + "/"))
	w.hidden("login", false)
	w.says("primary", "unknown")
	w.do(chromedp.SendKeys("#token", "wrong"))
	w.click("use-token")
	w.says("login-why", "not known")
	w.hidden("login", false)
	w.do(chromedp.SendKeys("#token", readToken))
	w.click("use-token")
	w.says("primary", "★ s1")
	w.hidden("login", true)
	w.click("plan")
	w.says("plan-error", "operate is needed")
	require.Empty(t, f.given())
}

// shot keeps a picture where a person asks for one.
func (w *window) shot(name string) {
	w.t.Helper()
	dir := os.Getenv("LOCKSTEP_SHOTS")
	if dir == "" {
		return
	}
	_, err := chromedp.Call(w.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
	require.NoError(w.t, err)
	if name == "wide" {
		w.do(chromedp.EmulateViewport(1200, 900))
	}
	png, err := chromedp.Run(w.ctx, chromedp.FullScreenshot(100))
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600))
}

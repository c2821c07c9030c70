package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/examples/internal/trial"
	"github.com/lockstep-ha/lockstep/monitor/routing"
)

func TestUsersSeeWhatTheyWrote(t *testing.T) {
	_, m := trial.Start(t, "CREATE TABLE app.notes (id INT AUTO_INCREMENT PRIMARY KEY, text TEXT)")
	r, err := routing.Open(routing.FromMonitor(m), routing.Options{DSN: trial.DSN, TokenKey: []byte("a key"), HoldWrites: 20 * time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	require.NoError(t, r.Ready(t.Context()))
	server := httptest.NewServer(service(r))
	defer server.Close()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar}

	write := func(i int) {
		res, err := client.PostForm(server.URL+"/notes", url.Values{"text": {fmt.Sprint("note ", i)}})
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusCreated, res.StatusCode)
	}
	read := func(c *http.Client) (notes []string) {
		res, err := c.Get(server.URL + "/notes")
		require.NoError(t, err)
		defer func() { require.NoError(t, res.Body.Close()) }()
		require.Equal(t, http.StatusOK, res.StatusCode)
		require.NoError(t, json.NewDecoder(res.Body).Decode(&notes))
		return notes
	}
	for i := range 30 {
		write(i)
		require.Len(t, read(client), i+1)
	}
	trial.Switchover(t, m, "s2")
	write(30)
	require.Len(t, read(client), 31)
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	cookies := jar.Cookies(u)
	require.Len(t, cookies, 1)
	_, err = r.ParseToken(cookies[0].Value)
	require.NoError(t, err)
	reads := uint64(0)
	for _, p := range r.Stats().Picks {
		if p.Role == "replica" {
			reads += p.Count
		}
	}
	require.NotZero(t, reads, "%+v", r.Stats())

	// A cookie that somebody made up is ignored.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/notes", nil)
	require.NoError(t, err)
	req.AddCookie(&http.Cookie{Name: cookieToken, Value: "m:0-1-18446744073709551615"})
	before := r.Stats().Waits
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, before, r.Stats().Waits)
}

package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-ha/lockstep/monitor"
)

// codes asks with the three methods that load balancers use, which must say the same.
func codes(t *testing.T, h http.Handler, path string) int {
	t.Helper()
	var got []int
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		require.True(t, json.Valid(w.Body.Bytes()))
		got = append(got, w.Code)
	}
	require.Equal(t, []int{got[0], got[0], got[0]}, got, path)
	return got[0]
}

func TestChecks(t *testing.T) {
	const yes, no = http.StatusOK, http.StatusServiceUnavailable
	lost := func(f *fake) { f.view.Primary, f.view.ValidForMS = nil, 0 }
	expired := func(f *fake) { f.dead = true; lost(f) }
	// yes or no: as it should be, without a primary, and with a view that has expired.
	for path, want := range map[string][3]int{
		"/v1/clusters/shop/primary":                {yes, no, no},
		"/primary":                                 {yes, no, no},
		"/primary?cluster=shop":                    {yes, no, no},
		"/primary?server=s1":                       {yes, no, no},
		"/primary?server=s2":                       {no, no, no},
		"/read-write?server=s1":                    {yes, no, no},
		"/read-write?server=s2":                    {no, no, no},
		"/read-write?server=s6":                    {no, no, no},
		"/replica?server=s1":                       {no, no, no},
		"/replica?server=s2":                       {yes, no, no},
		"/replica?server=s2&without_primary=yes":   {yes, yes, no},
		"/replica?server=s2&without_primary=no":    {yes, no, no},
		"/replica?server=s2&lag=200ms":             {yes, no, no},
		"/replica?server=s2&lag=100ms":             {no, no, no},
		"/replica?server=s3":                       {yes, no, no},
		"/replica?server=s3&lag=5s":                {no, no, no},
		"/replica?server=s4":                       {no, no, no},
		"/replica?server=s5":                       {no, no, no},
		"/replica?server=s6&without_primary=yes":   {no, no, no},
		"/replica?server=s7":                       {yes, no, no},
		"/replica?server=s7&lag=1h":                {no, no, no},
		"/read-only?server=s1":                     {yes, no, no},
		"/read-only?server=s1&lag=0s":              {yes, no, no},
		"/read-only?server=s2&lag=5s&cluster=shop": {yes, no, no},
		"/read-only?server=s3&lag=5s":              {no, no, no},
		"/read-only?server=s2&without_primary=yes": {yes, yes, no},
		"/health":                                       {yes, yes, no},
		"/health?server=s1":                             {yes, yes, no},
		"/health?server=s5":                             {no, no, no},
		"/health?server=s6":                             {no, no, no},
		"/healthz":                                      {yes, yes, no},
		"/readyz":                                       {yes, yes, yes},
		"/replica?server=nobody":                        {404, 404, 404},
		"/read-write?server=nobody":                     {404, 404, 404},
		"/health?server=nobody":                         {404, 404, 404},
		"/primary?cluster=other":                        {404, 404, 404},
		"/read-write":                                   {400, 400, 400},
		"/read-write?server=":                           {400, 400, 400},
		"/primary?server=":                              {400, 400, 400},
		"/read-write?server=s1&server=s2":               {400, 400, 400},
		"/replica?server=s2&lag=5":                      {400, 400, 400},
		"/replica?server=s2&lag=-5s":                    {400, 400, 400},
		"/replica?server=s2&lagg=5s":                    {400, 400, 400},
		"/replica?server=s2&without_primary=yes%20sir":  {400, 400, 400},
		"/v1/clusters/nothing/primary":                  {404, 404, 404},
		"/read-write?server=s1&cluster=shop&cluster=x2": {400, 400, 400},
	} {
		for i, change := range []func(*fake){func(*fake) {}, lost, expired} {
			f := shop()
			change(f)
			require.Equal(t, want[i], codes(t, newRouter(newAPI(fakes(f))), path), "%s, case %d", path, i)
		}
	}
}

// A server that is asked about too rarely is not said to be fine.
func TestStaleServer(t *testing.T) {
	f := shop()
	h := newRouter(newAPI(fakes(f)))
	f.view.Servers[1].ProbeAgeMS = 6000
	require.Equal(t, 200, codes(t, h, "/replica?server=s2"))
	f.view.Servers[1].ProbeAgeMS = 6001
	require.Equal(t, 503, codes(t, h, "/replica?server=s2"))
	require.Equal(t, 503, codes(t, h, "/health?server=s2"))
	f.view.Servers[1].ProbeAgeMS = -1
	require.Equal(t, 503, codes(t, h, "/replica?server=s2"))
}

func TestSeveralClusters(t *testing.T) {
	a, b := shop(), shop()
	b.view.Cluster, b.view.Primary = "depot", &monitor.Endpoint{Name: "s2"}
	h := newRouter(newAPI(fakes(a, b)))
	require.Equal(t, 400, codes(t, h, "/primary"))
	require.Equal(t, 200, codes(t, h, "/read-write?server=s1&cluster=shop"))
	require.Equal(t, 503, codes(t, h, "/read-write?server=s1&cluster=depot"))
	require.Equal(t, 400, codes(t, newRouter(newAPI(fakes())), "/primary"))
}

// What a load balancer may ask without a token says nothing but names of servers.
func TestChecksTellLittle(t *testing.T) {
	f := shop()
	f.view.Reason = "secret reason"
	f.view.Servers[5].Detail = "secret detail"
	for _, path := range []string{"/primary", "/read-write?server=s6", "/replica?server=s6", "/health?server=s6", "/read-only?server=s6"} {
		w := httptest.NewRecorder()
		newRouter(newAPI(fakes(f))).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		require.NotContains(t, w.Body.String(), "secret")
		require.NotContains(t, w.Body.String(), "10.0.0.")
	}
}

func TestMethods(t *testing.T) {
	h := newRouter(newAPI(fakes(shop())))
	for path, allow := range map[string]string{
		"/read-write?server=s1":      "GET, HEAD, OPTIONS",
		"/v1/clusters/shop":          "GET, HEAD",
		"/v1/clusters/shop/primary":  "GET, HEAD, OPTIONS",
		"/v1/clusters/shop/commands": "POST",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodDelete, path, nil))
		require.Equal(t, http.StatusMethodNotAllowed, w.Code, path)
		require.Equal(t, allow, w.Header().Get("Allow"), path)
	}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/lockstep-ha/lockstep/monitor"
)

// maxBody bounds what is read of an answer.
const maxBody = 64 << 20

// client reads views from the HTTP API of lockstepd.
type client struct {
	base string
	http *http.Client
}

// newClient checks the URL; "host:port" means http.
func newClient(server string) (*client, error) {
	text := strings.TrimRight(server, "/")
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, usagef("server %q is no URL like %s", server, defaultServer)
	}
	return &client{base: text, http: &http.Client{}}, nil
}

// Clusters implements source.
func (c *client) Clusters(ctx context.Context) ([]monitor.View, error) {
	var body struct {
		Clusters []monitor.View `json:"clusters"`
	}
	err := c.get(ctx, "/v1/clusters", &body)
	return body.Clusters, err
}

// Cluster implements source.
func (c *client) Cluster(ctx context.Context, name string) (monitor.View, error) {
	var view monitor.View
	err := c.get(ctx, "/v1/clusters/"+url.PathEscape(name), &view)
	return view, err
}

func (c *client) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return c.unreachable(err)
	}
	if resp.StatusCode != http.StatusOK {
		return c.refused(resp.Status, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s%s is no answer of lockstepd: %w", c.base, path, err)
	}
	return nil
}

// refused makes an error of an answer that is not 200.
func (c *client) refused(status string, body []byte) error {
	var problem struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(body, &problem); err == nil && problem.Error != "" {
		return errors.New(problem.Error)
	}
	return fmt.Errorf("%s answers %s; is it lockstepd?", c.base, status)
}

func (c *client) unreachable(err error) error {
	const hint = "is it running? give --server or " + serverEnv
	var netErr net.Error
	var urlErr *url.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("cannot reach lockstepd at %s; %s", c.base, hint)
	case errors.As(err, &netErr) && netErr.Timeout():
		return fmt.Errorf("lockstepd at %s does not answer in time; give a longer --timeout", c.base)
	case errors.As(err, &urlErr):
		return fmt.Errorf("cannot reach lockstepd at %s: %w; %s", c.base, urlErr.Err, hint)
	}
	return fmt.Errorf("cannot read the answer of lockstepd at %s: %w", c.base, err)
}

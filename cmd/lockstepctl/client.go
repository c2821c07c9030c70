package main

import (
	"bytes"
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
	"github.com/lockstep-ha/lockstep/monitor/api"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// maxBody bounds what is read of an answer.
const maxBody = 64 << 20

// client speaks the HTTP API of lockstepd.
type client struct {
	base  string
	token string
	http  *http.Client
}

// newClient checks the URL; "host:port" means http.
func newClient(server string, with access) (*client, error) {
	text := strings.TrimRight(server, "/")
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, usagef("server %q is no URL like %s", server, defaultServer)
	}
	c := &client{base: text}
	if c.token, err = with.token(); err != nil {
		return nil, err
	}
	config, err := with.tls()
	if err != nil {
		return nil, err
	}
	switch {
	case u.Scheme == "http" && config != nil:
		return nil, usagef("--ca, --cert and --key are for TLS, but %s is not: write https://", text)
	case u.Scheme == "http" && c.token != "" && !onHost(u.Hostname()):
		return nil, usagef("the token would cross the network in the clear: write https:// in place of %s", text)
	}
	t := http.DefaultTransport
	if std, ok := t.(*http.Transport); ok && config != nil {
		std = std.Clone()
		std.TLSClientConfig = config
		t = std
	}
	c.http = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

// Clusters implements source.
func (c *client) Clusters(ctx context.Context) ([]monitor.View, error) {
	var body struct {
		Clusters []monitor.View `json:"clusters"`
	}
	err := c.do(ctx, http.MethodGet, "/v1/clusters", nil, &body)
	return body.Clusters, err
}

// Cluster implements source.
func (c *client) Cluster(ctx context.Context, name string) (monitor.View, error) {
	var view monitor.View
	err := c.do(ctx, http.MethodGet, "/v1/clusters/"+url.PathEscape(name), nil, &view)
	return view, err
}

// Command gives a command to the monitor of a cluster.
func (c *client) Command(ctx context.Context, cluster string, cmd monitor.Command) (monitor.Reply, error) {
	var reply monitor.Reply
	err := c.do(ctx, http.MethodPost, "/v1/clusters/"+url.PathEscape(cluster)+"/commands", cmd, &reply)
	var p *problem
	switch {
	case errors.As(err, &p):
		p.action = cmd.Action
		if p.status >= http.StatusInternalServerError && p.Code == "failed" && !cmd.DryRun {
			return reply, fmt.Errorf("%w; %s", err, notKnown)
		}
	case errors.Is(err, errLost) && !cmd.DryRun:
		return reply, fmt.Errorf("%w; %s", err, notKnown)
	}
	return reply, err
}

// notKnown is said of commands to which there was no answer.
const notKnown = "it is not known whether the command is carried out: see lockstepctl history and explain"

// Operations returns the operations that the monitor of a cluster remembers.
func (c *client) Operations(ctx context.Context, cluster string) ([]operation.Record, error) {
	var body struct {
		Operations []operation.Record `json:"operations"`
	}
	err := c.do(ctx, http.MethodGet, "/v1/clusters/"+url.PathEscape(cluster)+"/operations", nil, &body)
	return body.Operations, err
}

// Operation returns one of them.
func (c *client) Operation(ctx context.Context, cluster, id string) (operation.Record, error) {
	var rec operation.Record
	err := c.do(ctx, http.MethodGet, "/v1/clusters/"+url.PathEscape(cluster)+"/operations/"+url.PathEscape(id), nil, &rec)
	return rec, err
}

// errLost marks that a request may have arrived though there is no answer.
var errLost = errors.New("no answer")

// problem is what lockstepd answers instead of what was asked for.
type problem struct {
	api.Problem
	status int
	// action is what was commanded, "" for queries.
	action monitor.Action
}

func (p *problem) Error() string {
	if len(p.Refusals) > 0 {
		return string(p.action) + " is refused; nothing was done"
	}
	return p.Problem.Error
}

// Is tells that a command was not carried out, and that the command line was not wrong.
func (p *problem) Is(target error) bool {
	return target == errRefused && p.status == http.StatusConflict
}

// do makes a request; send is nil for none.
func (c *client) do(ctx context.Context, method, path string, send, into any) error {
	var content io.Reader
	if send != nil {
		b, err := json.Marshal(send)
		if err != nil {
			return err
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if send != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return c.unreachable(err)
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusAccepted {
		return c.refused(resp, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s%s is no answer of lockstepd: %w", c.base, path, err)
	}
	return nil
}

// refused makes an error of an answer that is not 200 or 202.
func (c *client) refused(resp *http.Response, body []byte) error {
	p := &problem{status: resp.StatusCode}
	if err := json.Unmarshal(body, &p.Problem); err == nil && p.Problem.Error != "" {
		if resp.StatusCode == http.StatusUnauthorized {
			p.Problem.Error += "; give --token-file or " + tokenEnv
		}
		return p
	}
	text := fmt.Sprintf("%s answers %s; is it lockstepd?", c.base, resp.Status)
	if resp.StatusCode >= http.StatusInternalServerError {
		return marked{errLost, text}
	}
	return errors.New(text)
}

// unreachable says why there is no answer.
func (c *client) unreachable(err error) error {
	const hint = "is it running? give --server or " + serverEnv
	var netErr net.Error
	var urlErr *url.Error
	var text string
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		text = fmt.Sprintf("cannot reach lockstepd at %s; %s", c.base, hint)
	case errors.As(err, &netErr) && netErr.Timeout():
		text = fmt.Sprintf("lockstepd at %s does not answer in time; give a longer --timeout", c.base)
	case errors.Is(err, context.Canceled):
		text = "interrupted before lockstepd has answered"
	case errors.As(err, &urlErr) && strings.Contains(urlErr.Err.Error(), "HTTP response to HTTPS client"):
		text = fmt.Sprintf("%s speaks no TLS: write http://", c.base)
	case errors.As(err, &urlErr) && strings.Contains(urlErr.Err.Error(), "certificate"):
		text = fmt.Sprintf("the certificate of %s is not accepted: %v; see --ca", c.base, urlErr.Err)
	case errors.As(err, &urlErr):
		text = fmt.Sprintf("cannot reach lockstepd at %s: %v; %s", c.base, urlErr.Err, hint)
	default:
		text = fmt.Sprintf("cannot read the answer of lockstepd at %s: %v", c.base, err)
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return errors.New(text) // nothing was sent
	}
	return marked{errLost, text}
}

package publish

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// web posts events. It follows no redirect: an event goes where the configuration
// says.
var web = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// post sends an event to a webhook.
func post(ctx context.Context, h Hook, e Event, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", errFinal, withoutURL(err))
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "lockstepd")
	req.Header.Set("Lockstep-Event", e.Name)
	req.Header.Set("Lockstep-Event-Id", e.ID)
	if h.Secret != "" {
		mac := hmac.New(sha256.New, []byte(h.Secret))
		mac.Write(body)
		req.Header.Set("Lockstep-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	}
	resp, err := web.Do(req)
	if err != nil {
		return withoutURL(err)
	}
	defer func() { _ = resp.Body.Close() }()
	// Read, so that the connection can be used again.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code >= 500:
		return fmt.Errorf("the webhook answers %s", resp.Status)
	default:
		return fmt.Errorf("the webhook answers %s: %w", resp.Status, errFinal)
	}
}

// withoutURL keeps the URL out of an error, since it may be a secret.
func withoutURL(err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		return ue.Err
	}
	return err
}

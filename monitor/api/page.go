package api

import (
	"embed"
	"io/fs"
	"mime"
	"net/http"
	"path"
)

// pageFiles are the web page. It loads nothing from elsewhere, and has no build step.
//
//go:embed page
var pageFiles embed.FS

// policy lets the page use its own script, style and API, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// page serves one file of the page. It holds no data: that comes from the API.
func page(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		text, err := fs.ReadFile(pageFiles, "page/"+name)
		if err != nil {
			problem(w, http.StatusInternalServerError, "the page is not part of this program")
			return
		}
		h := w.Header()
		h.Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		// The client is gone if this fails; there is nobody left to tell.
		_, _ = w.Write(text)
	}
}

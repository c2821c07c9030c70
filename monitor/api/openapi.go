package api

import (
	"encoding"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/lockstep-ha/lockstep/monitor"
	"github.com/lockstep-ha/lockstep/monitor/operation"
)

// object is a JSON object.
type object = map[string]any

// described is what the OpenAPI description says of a route.
type described struct {
	summary string
	// params are the names of the parameters, which are in queryParams unless they
	// are part of the path.
	params []string
	// body is the type of the request, nil for none.
	body reflect.Type
	// answers are by status; the type is nil where the content is not JSON.
	answers map[string]reflect.Type
	// content is the media type where it is not JSON.
	content string
}

// The types of answers that have no type elsewhere.
type (
	clustersAnswer struct {
		Clusters []monitor.View `json:"clusters"`
	}
	primaryAnswer struct {
		Primary    *monitor.Endpoint `json:"primary"`
		ValidForMS int64             `json:"valid_for_ms,omitempty"`
		Reason     string            `json:"reason,omitempty"`
	}
	operationsAnswer struct {
		Operations []operation.Record `json:"operations"`
	}
	aliveAnswer struct {
		OK       bool     `json:"ok"`
		Stalled  []string `json:"stalled,omitempty"`
		NotReady []string `json:"not_ready,omitempty"`
	}
)

func of[T any]() reflect.Type { return reflect.TypeFor[T]() }

var queryParams = map[string]object{
	"cluster":         {"description": "Name of the cluster; may be left out where there is one only.", "schema": object{"type": "string"}},
	"server":          {"description": "Name of the server.", "schema": object{"type": "string"}},
	"lag":             {"description": "The most that a replica may be behind, like 5s.", "schema": object{"type": "string"}},
	"without_primary": {"description": "Whether a replica may be read while no primary is offered.", "schema": object{"type": "string", "enum": []string{"yes", "no"}}},
}

// checkDoc describes a check for load balancers.
func checkDoc(summary string, params ...string) described {
	return described{summary: summary, params: append([]string{"cluster", "server"}, params...),
		answers: map[string]reflect.Type{"200": of[verdict](), "503": of[verdict](), "400": of[Problem](), "404": of[Problem]()}}
}

func file(summary, content string) described {
	return described{summary: summary, content: content, answers: map[string]reflect.Type{"200": nil}}
}

// descriptions are by the path of the route.
var descriptions = map[string]described{
	"/v1/clusters":                {summary: "The views of all clusters.", answers: map[string]reflect.Type{"200": of[clustersAnswer]()}},
	"/v1/clusters/{name}":         {summary: "The view of a cluster.", answers: map[string]reflect.Type{"200": of[monitor.View](), "404": of[Problem]()}},
	"/v1/clusters/{name}/primary": {summary: "The primary, or why there is none.", answers: map[string]reflect.Type{"200": of[primaryAnswer](), "503": of[primaryAnswer](), "404": of[Problem]()}},
	"/v1/clusters/{name}/events": {summary: "A stream of server-sent events, each \"view\" with the view as data.", content: "text/event-stream",
		answers: map[string]reflect.Type{"200": nil, "404": of[Problem](), "503": of[Problem]()}},
	"/v1/clusters/{name}/commands": {summary: "Give the monitor a command.", body: of[monitor.Command](),
		answers: map[string]reflect.Type{"200": of[monitor.Reply](), "202": of[monitor.Reply](), "400": of[Problem](), "404": of[Problem](), "409": of[Problem](),
			"415": of[Problem](), "500": of[Problem](), "503": of[Problem]()}},
	"/v1/clusters/{name}/operations":      {summary: "The operations that this monitor remembers, the newest first.", answers: map[string]reflect.Type{"200": of[operationsAnswer](), "404": of[Problem]()}},
	"/v1/clusters/{name}/operations/{id}": {summary: "One operation.", answers: map[string]reflect.Type{"200": of[operation.Record](), "404": of[Problem]()}},
	"/primary":                            checkDoc("Is a primary offered? With a server: is it that one?"),
	"/read-write":                         checkDoc("Is the server the primary?"),
	"/replica":                            checkDoc("Is the server a replica that may be read?", "lag", "without_primary"),
	"/read-only":                          checkDoc("Is the server the primary, or a replica that may be read?", "lag", "without_primary"),
	"/health":                             checkDoc("Does the monitor look at the servers? With a server: does it answer?"),
	"/healthz":                            {summary: "Do all loops go on?", answers: map[string]reflect.Type{"200": of[aliveAnswer](), "503": of[aliveAnswer]()}},
	"/readyz":                             {summary: "Was every cluster looked at?", answers: map[string]reflect.Type{"200": of[aliveAnswer](), "503": of[aliveAnswer]()}},
	"/v1/openapi.json":                    {summary: "This description.", answers: map[string]reflect.Type{"200": of[object]()}},
	"/metrics":                            file("Metrics for Prometheus.", "text/plain"),
	"/{$}":                                file("A page for people.", "text/html"),
	"/page/app.js":                        file("The script of the page.", "text/javascript"),
	"/page/style.css":                     file("The style of the page.", "text/css"),
}

// openAPI answers with the description of the routes.
func (a *api) openAPI(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, a.describe()) }

func (a *api) describe() object {
	schemas := schemas{}
	paths := object{}
	for _, r := range a.routes() {
		d := descriptions[r.path]
		item := object{}
		for _, method := range r.methods {
			item[strings.ToLower(method)] = d.operation(r, method, schemas)
			if method == http.MethodGet {
				item["head"] = d.operation(r, http.MethodHead, schemas)
			}
		}
		paths[strings.TrimSuffix(r.path, "{$}")] = item
	}
	return object{
		"openapi": "3.0.3",
		"info":    object{"title": "lockstepd", "version": "1", "description": "What lockstepd knows of its clusters, and commands for it. See docs/api.md."},
		"paths":   paths,
		"components": object{
			"schemas":         schemas,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
		},
	}
}

func (d described) operation(r route, method string, s schemas) object {
	name := strings.Trim(strings.NewReplacer("/", "_", "{", "", "}", "", "$", "root", "-", "_", ".", "_").Replace(r.path), "_")
	out := object{"summary": d.summary, "operationId": strings.ToLower(method) + "_" + name}
	params := []object{}
	for _, part := range strings.Split(r.path, "/") {
		if p, ok := strings.CutPrefix(part, "{"); ok && p != "$}" {
			params = append(params, object{"name": strings.TrimSuffix(p, "}"), "in": "path", "required": true, "schema": object{"type": "string"}})
		}
	}
	for _, p := range d.params {
		q := maps.Clone(queryParams[p])
		q["name"], q["in"] = p, "query"
		params = append(params, q)
	}
	out["parameters"] = params
	if d.body != nil {
		out["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": s.of(d.body)}}}
	}
	answers := object{}
	for status, t := range d.answers {
		answers[status] = d.response(status, t, s)
	}
	if r.need > RoleNone {
		out["security"] = []object{{"token": []string{}}, {}}
		answers["401"] = d.response("401", of[Problem](), s)
		answers["403"] = d.response("403", of[Problem](), s)
	}
	out["responses"] = answers
	return out
}

var statusTexts = map[string]string{"200": "Yes, or done.", "202": "An operation has begun.", "400": "It cannot be understood.", "401": "A token is needed.",
	"403": "Not allowed.", "404": "Not known.", "409": "Refused.", "415": "Not JSON.", "500": "It failed.", "503": "No, or not now."}

func (d described) response(status string, t reflect.Type, s schemas) object {
	content := object{"application/json": object{}}
	if t == nil {
		content = object{d.content: object{"schema": object{"type": "string"}}}
	} else {
		content["application/json"] = object{"schema": s.of(t)}
	}
	return object{"description": statusTexts[status], "content": content}
}

// schemas are made of Go types, by name.
type schemas map[string]any

// of returns the schema of a type; structs are put aside under their name.
func (s schemas) of(t reflect.Type) object {
	switch {
	case t == of[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t.Implements(of[encoding.TextMarshaler]()):
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		inner := s.of(t.Elem())
		if _, ref := inner["$ref"]; ref {
			return object{"allOf": []object{inner}, "nullable": true}
		}
		inner["nullable"] = true
		return inner
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem()), "nullable": true}
	case reflect.Map:
		out := object{"type": "object"}
		if t.Elem().Kind() != reflect.Interface {
			out["additionalProperties"] = s.of(t.Elem())
		}
		return out
	case reflect.Struct:
		name := t.Name()
		if _, ok := s[name]; !ok {
			s[name] = nil // for types that hold themselves
			s[name] = s.fields(t)
		}
		return object{"$ref": "#/components/schemas/" + name}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer"}
	case reflect.String:
		return object{"type": "string"}
	}
	return object{}
}

func (s schemas) fields(t reflect.Type) object {
	properties, required := object{}, []string{}
	for f := range t.Fields() {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || tag == "-" {
			continue
		}
		if tag == "" {
			tag = f.Name
		}
		properties[tag] = s.of(f.Type)
		if !strings.Contains(options, "omitempty") {
			required = append(required, tag)
		}
	}
	out := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

package integration

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/lockstep-ha/lockstep"

// purePackages must be functions of their arguments alone, so that a failure
// seen once can be repeated by pasting its observation. Each may import these
// packages of the module.
var purePackages = map[string][]string{
	"locks":            {"internal/sqlrows"},
	"election":         {"locks"},
	"topology":         {"topology/gtid"},
	"topology/gtid":    nil,
	"topology/mariadb": {"internal/sqlrows", "topology", "topology/gtid"},
	"topology/mysql":   {"internal/sqlrows", "topology", "topology/gtid"},
}

// impure are packages that do I/O, start goroutines or share state.
var impure = []string{
	"database/sql", "database/sql/driver", "io/fs", "io/ioutil", "log", "log/slog", "math/rand", "net/http", "net/rpc", "os", "os/exec",
	"os/signal", "runtime", "sync", "sync/atomic", "syscall", "unsafe", "crypto/rand",
}

// pureOf lists what may be used of packages that also hold what may not.
var pureOf = map[string][]string{
	"net":          {"JoinHostPort", "SplitHostPort", "ParseIP", "IP"},
	"math/rand/v2": {"Rand"}, // and its methods: randomness comes from the caller
	"context":      {"Context"},
}

// timeReads are the functions of package time that ask a clock or wait.
var timeReads = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// sortedAfter are the functions that may go through a map, since they sort what
// they took from it before anybody sees it.
var sortedAfter = []string{
	"locks.Agreement.text",
}

// finding is one thing that a pure package must not have.
type finding struct {
	at, what string
}

func (f finding) String() string { return f.at + ": " + f.what }

// inspect returns what is not pure in the files of a package, and the functions
// that range over a map.
func inspect(fset *token.FileSet, pkg string, files []*ast.File, info *types.Info) (bad []finding, overMaps []string) {
	note := func(n ast.Node, format string, args ...any) {
		p := fset.Position(n.Pos())
		bad = append(bad, finding{fmt.Sprintf("%s:%d", filepath.Base(p.Filename), p.Line), fmt.Sprintf(format, args...)})
	}
	for _, f := range files {
		for _, imp := range f.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			if rest, ok := strings.CutPrefix(path, modulePath+"/"); ok {
				if !slices.Contains(purePackages[pkg], rest) {
					note(imp, "imports %s", rest)
				}
				continue
			}
			if strings.Contains(strings.SplitN(path, "/", 2)[0], ".") || slices.Contains(impure, path) {
				note(imp, "imports %s", path)
			}
		}
		for _, decl := range f.Decls {
			name := pkg
			if fn, ok := decl.(*ast.FuncDecl); ok {
				name = pkg + "." + functionName(fn)
			} else if g, ok := decl.(*ast.GenDecl); ok && g.Tok == token.VAR {
				name = pkg + " (variables)"
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					note(n, "go statement")
				case *ast.SelectStmt:
					note(n, "select statement")
				case *ast.SendStmt:
					note(n, "send on a channel")
				case *ast.ChanType:
					note(n, "channel type")
				case *ast.UnaryExpr:
					if n.Op == token.ARROW {
						note(n, "receive from a channel")
					}
				case *ast.RangeStmt:
					if ofMap(info.TypeOf(n.X)) {
						overMaps = append(overMaps, name)
					}
				case *ast.Ident:
					obj := info.Uses[n]
					if obj == nil || obj.Pkg() == nil {
						return true
					}
					path := obj.Pkg().Path()
					switch allowed, mixed := pureOf[path]; {
					case path == "time" && slices.Contains(timeReads, obj.Name()) && isFunction(obj):
						note(n, "time.%s", obj.Name())
					case path == "maps" && slices.Contains([]string{"All", "Keys", "Values"}, obj.Name()):
						overMaps = append(overMaps, name)
					case path == "fmt" && (strings.HasPrefix(obj.Name(), "Print") || strings.HasPrefix(obj.Name(), "Scan")):
						note(n, "fmt.%s", obj.Name())
					case mixed && !slices.Contains(allowed, obj.Name()) && !isMember(obj):
						note(n, "%s.%s", path, obj.Name())
					}
				}
				return true
			})
		}
	}
	return bad, overMaps
}

// ofMap reports whether a value of this type is gone through in a random order.
func ofMap(t types.Type) bool {
	if t == nil {
		return false
	}
	if _, ok := t.Underlying().(*types.Map); ok {
		return true
	}
	p, ok := t.Underlying().(*types.Pointer)
	return ok && ofMap(p.Elem())
}

// isFunction reports whether an object is a function of a package, not a method
// (time.Time has a method After, too).
func isFunction(obj types.Object) bool {
	fn, ok := obj.(*types.Func)
	return ok && fn.Signature().Recv() == nil
}

// isMember reports whether an object is a method or a field: who has the value
// was given it.
func isMember(obj types.Object) bool {
	switch obj := obj.(type) {
	case *types.Func:
		return obj.Signature().Recv() != nil
	case *types.Var:
		return obj.IsField()
	}
	return false
}

func functionName(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	t := fn.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}

// exports asks the go command for the compiled export data of packages.
func exports(t *testing.T, patterns ...string) func(path string) (io.ReadCloser, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, patterns...)...)
	cmd.Dir = ".."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go list: %s", &stderr)
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, fmt.Errorf("no export data for %s", path)
		}
		return os.Open(files[path])
	}
}

func check(t *testing.T, fset *token.FileSet, imp types.Importer, pkg string, files []*ast.File) *types.Info {
	t.Helper()
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	_, err := (&types.Config{Importer: imp}).Check(modulePath+"/"+pkg, fset, files, info)
	require.NoError(t, err)
	return info
}

func TestPurePackages(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the go command is needed")
	}
	var patterns []string
	for pkg := range purePackages {
		patterns = append(patterns, "./"+pkg)
	}
	fset := token.NewFileSet()
	imp := importer.ForCompiler(fset, "gc", exports(t, patterns...))
	var used []string
	for pkg := range purePackages {
		names, err := filepath.Glob(filepath.Join("..", pkg, "*.go"))
		require.NoError(t, err)
		var files []*ast.File
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, f)
		}
		require.NotEmpty(t, files, pkg)
		bad, overMaps := inspect(fset, pkg, files, check(t, fset, imp, pkg, files))
		for _, f := range bad {
			t.Errorf("%s/%s", pkg, f)
		}
		for _, fn := range overMaps {
			if !slices.Contains(sortedAfter, fn) {
				t.Errorf("%s goes through a map: sort what it takes from it and list it here", fn)
			}
		}
		used = append(used, overMaps...)
	}
	for _, fn := range sortedAfter {
		require.Contains(t, used, fn, "%s goes through no map any more: take it off the list", fn)
	}
}

// TestPurityCheckObjects feeds the check with what it must find.
func TestPurityCheckObjects(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the go command is needed")
	}
	const source = `package election

import (
	"context"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"time"

	_ "github.com/lockstep-ha/lockstep/topology"
)

type named map[string]int

func clock() (time.Time, bool) { return time.Now(), time.Time{}.After(time.Time{}) }
func wait() { time.Sleep(1); f := time.After; _ = f }
func chance(r *rand.Rand) int { return rand.IntN(3) + r.IntN(3) }
func reach() { _, _ = net.Dial("tcp", net.JoinHostPort("a", "1")) }
func background() context.Context { return context.Background() }
func file() { _, _ = os.Open("x") }
func spawn(c chan int) { go func() { c <- 1 }(); select { case <-c: default: } }
func ranges(m named, s []int) { for range m { } ; for range s { } }
func keys(m named) { for range maps.Keys(m) { } }
func printed() { println() }
`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "bad.go", source, parser.SkipObjectResolution)
	require.NoError(t, err)
	imp := importer.ForCompiler(fset, "gc", exports(t, "context", "maps", "math/rand/v2", "net", "os", "time", "./topology"))
	files := []*ast.File{f}
	bad, overMaps := inspect(fset, "election", files, check(t, fset, imp, "election", files))
	var got []string
	for _, b := range bad {
		got = append(got, b.what)
	}
	for _, want := range []string{
		"imports os", "imports topology", "time.Now", "time.Sleep", "time.After", "net.Dial", "context.Background", "math/rand/v2.IntN",
		"go statement", "select statement", "send on a channel", "receive from a channel", "channel type",
	} {
		require.Contains(t, got, want)
	}
	require.Len(t, slices.DeleteFunc(slices.Clone(got), func(s string) bool { return s != "time.After" }), 1, "the method After of time.Time asks no clock")
	require.NotContains(t, got, "net.JoinHostPort")
	require.Equal(t, []string{"election.ranges", "election.keys"}, overMaps)
}

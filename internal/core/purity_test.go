package core_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentd/internal/core"
)

// TestSources_ArePure reads the package's sources: no I/O, clock or randomness (by its imports), no goroutine, no map
// iteration, no float.
func TestSources_ArePure(t *testing.T) {
	t.Parallel()
	allowed := []string{
		"agentd/internal/clip", "agentd/sdk", "agentd/sdk/wire", "bytes", "cmp", "crypto/sha256", "encoding/hex", "encoding/json", "errors", "fmt",
		"github.com/go-json-experiment/json", "github.com/go-json-experiment/json/jsontext", "hash/fnv", "slices", "strings",
	}
	fset := token.NewFileSet()
	files := parse(t, fset, ".")
	info := check(t, fset, files)
	for _, file := range files {
		for _, imported := range file.Imports {
			if path := unquote(t, imported.Path.Value); !slices.Contains(allowed, path) {
				t.Errorf("%s: imports %s", fset.Position(imported.Pos()), path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if fault := impure(n, info); fault != "" {
				t.Errorf("%s: %s", fset.Position(n.Pos()), fault)
			}
			return true
		})
	}
}

// impure says what is wrong with a node, if anything is.
func impure(n ast.Node, info *types.Info) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "starts a goroutine"
	case *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
		return "uses a channel"
	case *ast.RangeStmt:
		of := info.TypeOf(n.X)
		if of == nil || of == types.Typ[types.Invalid] {
			return "ranges over something whose type this test cannot tell"
		}
		if _, isMap := of.Underlying().(*types.Map); isMap {
			return "ranges over a map, whose order is random"
		}
	case ast.Expr:
		if of := info.TypeOf(n); of != nil {
			if basic, ok := of.Underlying().(*types.Basic); ok && basic.Info()&(types.IsFloat|types.IsComplex) != 0 {
				return "uses a float"
			}
		}
	}
	return ""
}

// parse reads the sources of a folder, without tests.
func parse(t *testing.T, fset *token.FileSet, dir string) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no sources in %s: %v", dir, err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// check infers the types in files. Of what they import only the SDK is known: enough to tell a map.
func check(t *testing.T, fset *token.FileSet, files []*ast.File) *types.Info {
	t.Helper()
	known := known{}
	tolerant := types.Config{Importer: known, Error: func(error) {}, IgnoreFuncBodies: true}
	// The error is the first of those that are tolerated.
	known["agentd/sdk"], _ = tolerant.Check("agentd/sdk", fset, parse(t, fset, "../../sdk"), nil)
	known["agentd/sdk/wire"], _ = tolerant.Check("agentd/sdk/wire", fset, parse(t, fset, "../../sdk/wire"), nil)
	info := &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
	}
	tolerant.IgnoreFuncBodies = false
	_, _ = tolerant.Check("agentd/internal/core", fset, files, info) // likewise
	return info
}

// known are the packages whose types are known; all others are empty.
type known map[string]*types.Package

func (k known) Import(path string) (*types.Package, error) {
	if k[path] == nil {
		k[path] = types.NewPackage(path, path[strings.LastIndex(path, "/")+1:])
		k[path].MarkComplete()
	}
	return k[path], nil
}

func unquote(t *testing.T, literal string) string {
	t.Helper()
	text, err := strconv.Unquote(literal)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestImpure_FindsWhatItLooksFor sees that the test above can fail.
func TestImpure_FindsWhatItLooksFor(t *testing.T) {
	t.Parallel()
	const source = `package core
import "agentd/sdk"
func f(c sdk.Contract, m map[string]int, ch chan int) {
	for range m {}
	for range c.Versions {}
	go f(c, m, ch)
	ch <- 1
	x := 1.5
	_ = x
	for range unknown() {}
}`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "source.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	info := check(t, fset, []*ast.File{file})
	found := map[int]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if fault := impure(n, info); fault != "" {
			found[fset.Position(n.Pos()).Line] = true
		}
		return true
	})
	for line := 3; line <= 10; line++ {
		if !found[line] {
			t.Errorf("line %d is taken for pure: %s", line, strings.Split(source, "\n")[line-1])
		}
	}
}

// TestState_HoldsPlainValues walks through the types that are stored: they have one encoding each.
func TestState_HoldsPlainValues(t *testing.T) {
	t.Parallel()
	seen := map[reflect.Type]bool{}
	var walk func(path string, of reflect.Type)
	walk = func(path string, of reflect.Type) {
		if seen[of] {
			return
		}
		seen[of] = true
		switch of.Kind() {
		case reflect.Map, reflect.Float32, reflect.Float64, reflect.Interface, reflect.Func, reflect.Chan:
			t.Errorf("%s is a %s", path, of)
		case reflect.Pointer, reflect.Slice, reflect.Array:
			walk(path, of.Elem())
		case reflect.Struct:
			if of == reflect.TypeFor[time.Time]() {
				t.Errorf("%s is a time.Time", path)
			}
			for i := range of.NumField() {
				walk(path+"."+of.Field(i).Name, of.Field(i).Type)
			}
		default:
		}
	}
	walk("Entry", reflect.TypeFor[core.Entry]())
	walk("State", reflect.TypeFor[core.State]())
}

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sources are the Go files of a folder without its tests.
func sources(t *testing.T, folder string) map[string]*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*ast.File{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		all[path] = file
	}
	return all
}

// library is what the packages of sdk have: by their names, what is exported, "Type.Member" too.
type library map[string]map[string]bool

func (l library) add(pkg string, names ...string) {
	if l[pkg] == nil {
		l[pkg] = map[string]bool{}
	}
	for _, n := range names {
		l[pkg][n] = true
	}
}

// take notes what a declaration exports.
func (l library) take(pkg string, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			name = receiver(d.Recv.List[0].Type) + "." + name
		}
		l.add(pkg, name)
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					l.add(pkg, n.Name)
				}
			case *ast.TypeSpec:
				l.add(pkg, s.Name.Name)
				for _, f := range fields(s.Type) {
					for _, n := range f.Names {
						l.add(pkg, s.Name.Name+"."+n.Name)
					}
				}
			}
		}
	}
}

func receiver(e ast.Expr) string {
	if star, ok := e.(*ast.StarExpr); ok {
		e = star.X
	}
	if name, ok := e.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// fields are those of a struct, and the methods of an interface.
func fields(e ast.Expr) []*ast.Field {
	switch e := e.(type) {
	case *ast.StructType:
		return e.Fields.List
	case *ast.InterfaceType:
		return e.Methods.List
	}
	return nil
}

// shown are the comments that a file's documentation shows: its own, and those of what is exported.
func shown(f *ast.File) []string {
	all := []string{f.Doc.Text()}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() {
				all = append(all, d.Doc.Text())
			}
		case *ast.GenDecl:
			all = append(all, d.Doc.Text())
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					if s.Names[0].IsExported() {
						all = append(all, s.Doc.Text(), s.Comment.Text())
					}
				case *ast.TypeSpec:
					all = append(all, ofType(s)...)
				}
			}
		}
	}
	return all
}

// ofType are the comments of a type and of its members, where they are exported.
func ofType(s *ast.TypeSpec) []string {
	if !s.Name.IsExported() {
		return nil
	}
	all := []string{s.Doc.Text()}
	for _, field := range fields(s.Type) {
		if len(field.Names) == 0 || field.Names[0].IsExported() {
			all = append(all, field.Doc.Text(), field.Comment.Text())
		}
	}
	return all
}

var (
	mention = regexp.MustCompile(`\b([a-z]\w*)\.([A-Z]\w*(?:\.[A-Z]\w*)?)`)
	member  = regexp.MustCompile(`(?:^|[^.\w])([A-Z]\w*)\.([A-Z]\w*)`)
	docLink = regexp.MustCompile(`\[\*?([A-Z]\w*(?:\.\w+)?)\]`)
)

// What a comment of the Go packages names by package, or links to, exists, and is nothing internal.
func TestComments_NameWhatExists(t *testing.T) {
	t.Parallel()
	l, files := library{}, map[string]map[string]*ast.File{}
	for _, folder := range []string{"sdk", "sdk/client", "sdk/sdktest", "sdk/service", "sdk/telemetry", "sdk/wire", "sdk/worker"} {
		pkg := filepath.Base(folder)
		files[pkg] = sources(t, folder)
		for _, f := range files[pkg] {
			for _, d := range f.Decls {
				l.take(pkg, d)
			}
		}
	}
	internal := insides(t)
	mentions := 0
	for pkg, of := range files {
		for path, f := range of {
			for _, text := range shown(f) {
				for _, m := range mention.FindAllStringSubmatch(text, -1) {
					switch known, ours := l[m[1]]; {
					case ours && !known[m[2]]:
						t.Errorf("%s: %s does not exist", path, m[0])
					case !ours && slices.Contains(internal, m[1]):
						t.Errorf("%s: %s is internal", path, m[0])
					case ours:
						mentions++
					}
				}
				for _, m := range member.FindAllStringSubmatch(text, -1) {
					if l[pkg][m[1]] && !l[pkg][m[1]+"."+m[2]] {
						t.Errorf("%s: %s.%s does not exist", path, m[1], m[2])
					}
				}
				for _, m := range docLink.FindAllStringSubmatch(text, -1) {
					if mentions++; !l[pkg][m[1]] {
						t.Errorf("%s: %s does not exist", path, m[0])
					}
				}
			}
		}
	}
	if mentions < 70 {
		t.Errorf("%d mentions were found", mentions)
	}
}

// insides are the names of internal packages.
func insides(t *testing.T) []string {
	t.Helper()
	found, err := os.ReadDir(filepath.Join(root, "internal"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range found {
		all = append(all, f.Name())
	}
	return all
}

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// change is a change of what one function does. It names the function and what in it is changed by what it is about, so
// that it follows the sources when they are moved, formatted or rewritten around it.
type change struct {
	// function is its package's folder, its receiver if it has one, and its name: "internal/core.tx.take".
	function string
	// find returns the place to change; of is the function's body.
	find func(*source, *ast.FuncDecl) (ast.Node, error)
	// write returns what replaces the place.
	write func(*source, ast.Node) (string, error)
}

// source is one file of a package, with the types of what is in it.
type source struct {
	path string
	text []byte
	file *ast.File
	pkg  *packages.Package
}

func (s *source) textOf(n ast.Node) string {
	from, to := s.pkg.Fset.Position(n.Pos()).Offset, s.pkg.Fset.Position(n.End()).Offset
	return string(s.text[from:to])
}

// around puts a body around the function: it replaces what the function does, and may call original, the function as it is.
// Parameters and the receiver have their names.
func around(function, body string) change {
	return change{
		function: function,
		find:     func(_ *source, f *ast.FuncDecl) (ast.Node, error) { return f, nil },
		write: func(s *source, n ast.Node) (string, error) {
			f := n.(*ast.FuncDecl)
			const suffix = "Unbroken"
			original := f.Name.Name + suffix
			text := s.textOf(f)
			name := s.pkg.Fset.Position(f.Name.End()).Offset - s.pkg.Fset.Position(f.Pos()).Offset
			brace := s.pkg.Fset.Position(f.Body.Pos()).Offset - s.pkg.Fset.Position(f.Pos()).Offset
			unbroken := text[:name] + suffix + text[name:]
			if f.Recv != nil && len(f.Recv.List[0].Names) == 1 {
				original = f.Recv.List[0].Names[0].Name + "." + original
			}
			return unbroken + "\n\n" + text[:brace] + "{\n\toriginal := " + original + "\n\t_ = original\n\t" + body + "\n}", nil
		},
	}
}

// condition replaces the smallest boolean expression that mentions some words, which are names. In to, $ stands for the
// expression itself.
func condition(function, words, to string) change {
	return change{
		function: function,
		find: func(s *source, f *ast.FuncDecl) (ast.Node, error) {
			return only(f, words, func(n ast.Node) bool {
				e, ok := n.(ast.Expr)
				if !ok {
					return false
				}
				t, ok := s.pkg.TypesInfo.Types[e]
				return ok && t.IsValue() && types.AssignableTo(t.Type, types.Typ[types.Bool])
			})
		},
		write: func(s *source, n ast.Node) (string, error) {
			// What is replaced is kept where it is never evaluated: it may be all that uses a variable.
			is := s.textOf(n)
			switch to {
			case "true":
				return "(true || (" + is + "))", nil
			case "false":
				return "(false && (" + is + "))", nil
			}
			return "(" + strings.ReplaceAll(to, "$", is) + ")", nil
		},
	}
}

// call replaces the call of a function by its name, the first of the words; it mentions the others. Nothing in place of it
// means that the function is not called and returns zero values.
func call(function, words, to string) change {
	callee, _, _ := strings.Cut(words, " ")
	return change{
		function: function,
		find: func(_ *source, f *ast.FuncDecl) (ast.Node, error) {
			return only(f, words, func(n ast.Node) bool {
				c, ok := n.(*ast.CallExpr)
				return ok && nameOf(c.Fun) == callee
			})
		},
		write: func(s *source, n ast.Node) (string, error) {
			if to != "" {
				return strings.ReplaceAll(to, "$", s.textOf(n)), nil
			}
			c := n.(*ast.CallExpr)
			signature, ok := s.pkg.TypesInfo.TypeOf(c.Fun).(*types.Signature)
			if !ok {
				return "", fmt.Errorf("%s is not a function", s.textOf(c.Fun))
			}
			var results, args []string
			for i := range signature.Results().Len() {
				results = append(results, fmt.Sprintf("_ %s", types.TypeString(signature.Results().At(i).Type(), s.qualifier)))
			}
			for _, a := range c.Args {
				args = append(args, s.textOf(a))
			}
			return fmt.Sprintf("func(...any) (%s) { return }(%s)", strings.Join(results, ", "), strings.Join(args, ", ")), nil
		},
	}
}

// statement replaces the smallest statement that mentions some words. In to, $ stands for the statement itself; nothing
// means that it is left out.
func statement(function, words, to string) change {
	return change{
		function: function,
		find: func(_ *source, f *ast.FuncDecl) (ast.Node, error) {
			return only(f, words, func(n ast.Node) bool {
				switch n.(type) {
				case *ast.AssignStmt, *ast.IncDecStmt, *ast.ExprStmt, *ast.ReturnStmt, *ast.BranchStmt, *ast.DeclStmt:
					return true
				}
				return false
			})
		},
		write: func(s *source, n ast.Node) (string, error) {
			if to == "" {
				to = "if false {\n$\n}" // it may be all that uses a variable
			}
			return strings.ReplaceAll(to, "$", s.textOf(n)), nil
		},
	}
}

// value replaces what a field is set to, in a literal or an assignment; the first word is the field, and the literal or
// the assignment mentions the others. In to, $ stands for the value.
func value(function, words, to string) change {
	field, _, _ := strings.Cut(words, " ")
	return change{
		function: function,
		find: func(_ *source, f *ast.FuncDecl) (ast.Node, error) {
			n, err := only(f, words, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.KeyValueExpr:
					return nameOf(n.Key) == field
				case *ast.AssignStmt:
					return slices.ContainsFunc(n.Lhs, func(e ast.Expr) bool { return nameOf(e) == field }) && len(n.Lhs) == len(n.Rhs)
				}
				return false
			})
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				return n.Value, err
			case *ast.AssignStmt:
				return n.Rhs[slices.IndexFunc(n.Lhs, func(e ast.Expr) bool { return nameOf(e) == field })], err
			}
			return nil, err
		},
		write: func(s *source, n ast.Node) (string, error) { return strings.ReplaceAll(to, "$", s.textOf(n)), nil },
	}
}

// nameOf is the last name of an expression: that of a function, a method or a field.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.IndexExpr:
		return nameOf(e.X)
	}
	return ""
}

// only returns the one node of a kind that mentions the words, which has none of the kind within it that does. A word with a
// minus before it must not be mentioned.
func only(f *ast.FuncDecl, words string, kind func(ast.Node) bool) (ast.Node, error) {
	var with, without []string
	for word := range strings.FieldsSeq(words) {
		if name, absent := strings.CutPrefix(word, "-"); absent {
			without = append(without, name)
		} else {
			with = append(with, word)
		}
	}
	var found []ast.Node
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if n == nil || !mentions(n, with) {
			return false
		}
		if kind(n) && !slices.ContainsFunc(without, func(word string) bool { return mentions(n, []string{word}) }) {
			found = slices.DeleteFunc(found, func(outer ast.Node) bool { return outer.Pos() <= n.Pos() && n.End() <= outer.End() })
			found = append(found, n)
		}
		return true
	})
	if len(found) != 1 {
		return nil, fmt.Errorf("%d places mention %q; want one", len(found), words)
	}
	return found[0], nil
}

// mentions reports whether each word is a name in the tree.
func mentions(n ast.Node, words []string) bool {
	left := slices.Clone(words)
	ast.Inspect(n, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok {
			left = slices.DeleteFunc(left, func(word string) bool { return word == name.Name })
		}
		return len(left) > 0
	})
	return len(left) == 0
}

// qualifier names packages as the file imports them.
func (s *source) qualifier(p *types.Package) string {
	if p == s.pkg.Types {
		return ""
	}
	for _, spec := range s.file.Imports {
		if strings.Trim(spec.Path.Value, `"`) == p.Path() && spec.Name != nil {
			return spec.Name.Name
		}
	}
	return p.Name()
}

// module is the packages whose functions may be changed.
type module map[string]*packages.Package

// load reads the packages of folders, with types.
func load(dir string, folders []string) (module, error) {
	patterns := make([]string, len(folders))
	for i, folder := range folders {
		patterns[i] = "./" + folder
	}
	list, err := packages.Load(&packages.Config{
		Dir:  dir,
		Mode: packages.NeedName | packages.NeedModule | packages.NeedFiles | packages.NeedImports | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedTypesSizes,
	}, patterns...)
	if err != nil {
		return nil, err
	}
	m := module{}
	for _, p := range list {
		for _, e := range p.Errors {
			err = errors.Join(err, e)
		}
		m[strings.TrimPrefix(p.PkgPath, p.Module.Path+"/")] = p
	}
	return m, err
}

// apply returns the file that a change changes, as it is then. It type-checks the package with it: a mutant that does not
// compile is not a mutant.
func (m module) apply(c change) (file string, text []byte, err error) {
	s, f, err := m.function(c.function)
	if err != nil {
		return "", nil, err
	}
	place, err := c.find(s, f)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", c.function, err)
	}
	to, err := c.write(s, place)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", c.function, err)
	}
	from, end := s.pkg.Fset.Position(place.Pos()).Offset, s.pkg.Fset.Position(place.End()).Offset
	text = slices.Concat(s.text[:from], []byte(to), s.text[end:])
	if err := s.check(text); err != nil {
		return "", nil, fmt.Errorf("%s: %s becomes %s: %w", c.function, s.textOf(place), to, err)
	}
	return s.path, text, nil
}

// function finds a function by its name.
func (m module) function(name string) (*source, *ast.FuncDecl, error) {
	folder, local := split(name)
	p := m[folder]
	if p == nil {
		return nil, nil, fmt.Errorf("package %s does not exist", folder)
	}
	for _, file := range p.Syntax {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || localName(f) != local {
				continue
			}
			path := p.Fset.Position(file.Pos()).Filename
			text, err := os.ReadFile(path)
			return &source{path: path, text: text, file: file, pkg: p}, f, err
		}
	}
	return nil, nil, fmt.Errorf("package %s has no function %s", folder, local)
}

// split parts the name of a function into its package's folder and its name there.
func split(function string) (folder, local string) {
	dot := strings.LastIndex(function, "/") + 1
	dot += strings.Index(function[dot:], ".")
	return function[:dot], function[dot+1:]
}

func (c change) folder() string {
	folder, _ := split(c.function)
	return folder
}

// localName is the name of a function within its package.
func localName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	return nameOf(t) + "." + f.Name.Name
}

// check type-checks the package with another text of the file.
func (s *source) check(text []byte) error {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range s.pkg.GoFiles {
		var from any
		if path == s.path {
			from = text
		}
		file, err := parser.ParseFile(fset, path, from, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	_, err := (&types.Config{Importer: importer(s.pkg.Imports), Sizes: s.pkg.TypesSizes}).Check(s.pkg.PkgPath, fset, files, nil)
	return err
}

// importer has what the package imports.
type importer map[string]*packages.Package

func (i importer) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if p := i[path]; p != nil {
		return p.Types, nil
	}
	return nil, fmt.Errorf("%s is not imported", filepath.ToSlash(path))
}

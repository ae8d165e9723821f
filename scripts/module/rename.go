package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
	"golang.org/x/mod/modfile"
)

// renaming is that of a module.
type renaming struct {
	from, to string
	// packages are the paths of the module's packages, as they are before.
	packages map[string]bool
}

// rename changes the files of the module in a folder, and says how many. It changes none if one of them cannot be read.
func rename(folder, to string) (int, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return 0, err
	}
	defer func() { _ = root.Close() }() // every write is checked
	mod, err := root.ReadFile("go.mod")
	if err != nil {
		return 0, err
	}
	r := renaming{modfile.ModulePath(mod), to, map[string]bool{}}
	files, err := sources(root.FS())
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		if path.Ext(file) == ".go" {
			r.packages[path.Join(r.from, path.Dir(file))] = true
		}
	}
	changed := map[string][]byte{}
	var faults []error
	for _, file := range files {
		before, err := root.ReadFile(file)
		if err != nil {
			return 0, err
		}
		after, err := r.file(file, before)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", file, err))
		} else if !bytes.Equal(before, after) {
			changed[file] = after
		}
	}
	if err := errors.Join(faults...); err != nil {
		return 0, err
	}
	for file, after := range changed {
		if err := root.WriteFile(file, after, 0o600); err != nil { // an existing file keeps its mode
			return 0, err
		}
	}
	return len(changed), nil
}

// sources are the files of a folder, but for those of git, of npm and that were built.
func sources(folder fs.FS) ([]string, error) {
	var files []string
	err := fs.WalkDir(folder, ".", func(file string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && slices.Contains([]string{".git", "node_modules", "bin"}, e.Name()):
			return fs.SkipDir
		case e.Type().IsRegular():
			files = append(files, file)
		}
		return nil
	})
	return files, err
}

// file returns what a file is to be.
func (r renaming) file(name string, text []byte) ([]byte, error) {
	switch {
	case path.Ext(name) == ".go":
		return r.source(text)
	case path.Base(name) == "go.mod":
		return r.mod(name, text)
	case path.Base(name) == ".golangci.yml":
		return r.yaml(text)
	case path.Ext(name) == ".md":
		return r.page(text)
	}
	return text, nil
}

// renamed returns the new path of a package, if it is one of the module.
func (r renaming) renamed(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, r.from)
	return r.to + rest, ok && (rest == "" || rest[0] == '/')
}

// splice is a piece of a text that is replaced.
type splice struct {
	from, to int
	text     string
}

func spliced(text []byte, splices []splice) []byte {
	slices.SortFunc(splices, func(a, b splice) int { return b.from - a.from })
	for _, s := range splices {
		text = slices.Concat(text[:s.from], []byte(s.text), text[s.to:])
	}
	return text
}

// source renames imports, and strings that are the path of a package.
func (r renaming) source(text []byte) ([]byte, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	imported := map[*ast.BasicLit]bool{}
	for _, spec := range file.Imports {
		imported[spec.Path] = true
	}
	var splices []splice
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			return true // the parser has seen that it can be
		}
		at := fset.Position(literal.Pos()).Offset
		if inner, err := r.source([]byte(value)); err == nil && literal.Value[0] == '`' && string(inner) != value {
			splices = append(splices, splice{at, at + len(literal.Value), "`" + string(inner) + "`"}) // a source in a source
		}
		if to, ok := r.renamed(value); ok && (imported[literal] || value != r.from && r.packages[value]) {
			splices = append(splices, splice{at, at + len(literal.Value), strconv.Quote(to)})
		}
		return true
	})
	if len(splices) == 0 {
		return text, nil
	}
	after := spliced(text, splices)
	formatted, err := format.Source(text)
	if err == nil && bytes.Equal(formatted, text) {
		return format.Source(after) // imports are sorted by their paths
	}
	return after, err
}

// mod renames the module, or that of a folder, and what it needs.
func (r renaming) mod(name string, text []byte) ([]byte, error) {
	f, err := modfile.Parse(name, text, nil)
	if err != nil {
		return nil, err
	}
	if f.Module != nil {
		if to, ok := r.renamed(f.Module.Mod.Path); ok {
			err = f.AddModuleStmt(to)
		}
	}
	var lines []*modfile.Line
	for _, needed := range f.Require {
		lines = append(lines, needed.Syntax)
	}
	for _, replaced := range f.Replace {
		lines = append(lines, replaced.Syntax)
	}
	for _, line := range lines {
		for i, word := range line.Token {
			if to, ok := r.renamed(word); ok {
				line.Token[i] = to
			}
		}
	}
	return modfile.Format(f.Syntax), err
}

// yaml renames scalars that are the module's path or begin with it.
func (r renaming) yaml(text []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	lines := []int{0}
	for i, c := range text {
		if c == '\n' {
			lines = append(lines, i+1)
		}
	}
	var splices []splice
	var walk func(*yaml.Node)
	walk = func(n *yaml.Node) {
		for _, child := range n.Content {
			walk(child)
		}
		to, ok := r.renamed(strings.TrimSuffix(n.Value, "$"))
		if n.Kind != yaml.ScalarNode || !ok {
			return
		}
		at := lines[n.Line-1] + n.Column - 1
		if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
			at++
		}
		splices = append(splices, splice{at, at + len(r.from), to[:len(r.to)]})
	}
	walk(&document)
	return spliced(text, splices), nil
}

// page renames what Go blocks of a page import, and what blocks that are a go.mod need.
func (r renaming) page(text []byte) ([]byte, error) {
	var page bytes.Buffer
	for i, part := range strings.Split(string(text), "```") {
		if i > 0 {
			page.WriteString("```")
		}
		kind, block, fenced := strings.Cut(part, "\n")
		if i%2 == 0 || !fenced {
			page.WriteString(part)
			continue
		}
		page.WriteString(kind + "\n" + r.block(kind, block))
	}
	return page.Bytes(), nil
}

// block renames what a block of a page names. One that is a piece of a file has nothing to rename: imports stand in whole files.
func (r renaming) block(kind, text string) string {
	var after []byte
	var err error
	switch {
	case kind == "go":
		after, err = r.source([]byte(text))
	case strings.Contains(text, "replace "+r.from+" =>"):
		after, err = r.mod("go.mod", []byte(text))
	default:
		return text
	}
	if err != nil {
		return text
	}
	return string(after)
}

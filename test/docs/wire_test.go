package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"agentd/sdk/wire"
)

const wirePage = "docs/wire.md"

// part is what a page has below a heading, to the next of its level or above.
func part(t *testing.T, page, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(read(t, page), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no %q", page, heading)
	}
	level, _, _ := strings.Cut(heading, " ")
	end := regexp.MustCompile(`(?m)^#{2,` + strconv.Itoa(len(level)) + `} `).FindStringIndex(rest)
	if end == nil {
		return rest
	}
	return rest[:end[0]]
}

// firstCells are what the first column of a page's tables has in backquotes.
func firstCells(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, "|"); len(cells) > 2 && cells[0] == "" {
			all = append(all, texts(cells[1])...)
		}
	}
	return all
}

// texts are what a text has in backquotes.
func texts(text string) []string {
	var all []string
	for _, m := range inline.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// constants are the texts of the constants of a folder's Go files that are chosen by name and comment.
func constants(t *testing.T, folder string, chosen func(name, comment string) bool) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, s := range group.Specs {
				c := s.(*ast.ValueSpec)
				for i, value := range c.Values {
					literal, ok := value.(*ast.BasicLit)
					if !ok || literal.Kind != token.STRING || !chosen(c.Names[i].Name, group.Doc.Text()+c.Doc.Text()) {
						continue
					}
					text, err := strconv.Unquote(literal.Value)
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, text)
				}
			}
		}
	}
	return all
}

// The codes of errors are a closed set, and the page has it, no more and no less.
func TestWire_NamesEveryCode(t *testing.T) {
	t.Parallel()
	codes := constants(t, "sdk", func(name, _ string) bool { return strings.HasPrefix(name, "Code") })
	listed := firstCells(part(t, wirePage, "## Errors"))
	slices.Sort(codes)
	slices.Sort(listed)
	if len(codes) < 30 || !slices.Equal(codes, listed) {
		t.Errorf("the codes are\n%q\nand %s has\n%q", codes, wirePage, listed)
	}
}

func TestWire_NamesEveryAttribute(t *testing.T) {
	t.Parallel()
	attributes := constants(t, "sdk/wire", func(_, comment string) bool {
		return strings.Contains(strings.Join(strings.Fields(comment), " "), "is the extension attribute")
	})
	listed := firstCells(part(t, wirePage, "### Attributes"))
	if len(attributes) < 9 {
		t.Errorf("%d attributes are found", len(attributes))
	}
	for _, a := range attributes {
		if !slices.Contains(listed, a) {
			t.Errorf("%s has no attribute %s", wirePage, a)
		}
	}
}

// chapters are types that the page describes in chapters of their own.
var chapters = []reflect.Type{reflect.TypeFor[wire.Live](), reflect.TypeFor[wire.UndoCall]()}

// members are the names that a type has in JSON, and those of what it holds.
func members(of reflect.Type) []string {
	switch {
	case of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer:
		return members(of.Elem())
	case of.Kind() != reflect.Struct || slices.Contains(chapters, of):
		return nil
	}
	var all []string
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		all = append(append(all, name), members(field.Type)...)
	}
	return all
}

func TestWire_NamesWhatIsToldOfARun(t *testing.T) {
	t.Parallel()
	names := members(reflect.TypeFor[wire.RunStatus]())
	if len(names) < 50 {
		t.Errorf("%d names are found", len(names))
	}
	told := texts(part(t, wirePage, "## Asking about a run"))
	for _, name := range names {
		if !slices.Contains(told, name) {
			t.Errorf("%s does not say what %q is of a run", wirePage, name)
		}
	}
}

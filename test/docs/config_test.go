package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentd/internal/config"
	"agentd/internal/contracts"
	"agentd/internal/eval"
	"agentd/internal/schema"
	"agentd/internal/strict"
)

func compiled(t *testing.T, text []byte) *strict.Form {
	t.Helper()
	s, err := schema.Compile(text)
	if err != nil {
		t.Fatal(err)
	}
	return strict.NewForm(s)
}

// elsewhereFile are blocks that begin with the name of a file that agentd's schemas are not for.
var elsewhereFile = regexp.MustCompile(`^# (script|values)\.yaml\n`)

// Every configuration, contract and part of an agent that a page shows is one by the schemas.
func TestPages_ShowConfigurationsThatAreSound(t *testing.T) {
	t.Parallel()
	configuration, contract := compiled(t, config.Schema()), compiled(t, contracts.FileSchema())
	keys := (&strict.Reader{}).Parse("agentd.schema.json", config.Schema()).Get("properties").Names()
	shown := map[string]int{}
	for _, page := range pages(t) {
		for _, b := range blocks(t, page) {
			if b.language != "yaml" || elsewhereFile.MatchString(b.text) {
				continue
			}
			if strings.HasPrefix(b.text, "# cases.yaml\n") {
				if _, err := eval.Parse(b.String(), []byte(b.text)); err != nil {
					t.Errorf("%s:\n%v", b, err)
				}
				continue
			}
			var r strict.Reader
			root := r.Parse(b.String(), []byte(b.text))
			switch names := root.Names(); {
			case slices.Contains(names, "uri"):
				shown["contract"]++
				r.Check(root, contract)
			case !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(keys, name) }):
				shown["configuration"]++
				r.Check(root, configuration)
			default:
				shown["part of an agent"]++
				part := "agents:\n  - name: a\n    model: {name: m}\n" + indented(b.text)
				r.Check(r.Parse(b.String(), []byte(part)), configuration)
			}
			if err := r.Err(); err != nil {
				t.Errorf("%s:\n%v", b, err)
			}
		}
	}
	for _, kind := range []string{"contract", "configuration", "part of an agent"} {
		if shown[kind] < 3 {
			t.Errorf("%d of the kind %q were found", shown[kind], kind)
		}
	}
}

// indented has the least indented lines of a block where the keys of an agent are.
func indented(text string) string {
	const depth = 4
	least := depth
	for line := range strings.Lines(text) {
		least = min(least, len(line)-len(strings.TrimLeft(line, " ")))
	}
	return regexp.MustCompile(`(?m)^`).ReplaceAllString(text, strings.Repeat(" ", depth-least))
}

// Every agentd.yaml of the repository is one by the schema, but those that are there to be broken.
func TestFiles_AreSoundByTheSchema(t *testing.T) {
	t.Parallel()
	form, found := compiled(t, config.Schema()), 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() != "agentd.yaml" || strings.Contains(path, "testdata/broken") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found++
		var r strict.Reader
		r.Check(r.Parse(path, data), form)
		if err := r.Err(); err != nil {
			t.Error(err)
		}
		return nil
	})
	if err != nil || found < 3 {
		t.Errorf("%d files, %v", found, err)
	}
}

package initialize

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentd/internal/contractlint"
	"agentd/internal/contracts"
	"agentd/internal/schema"
)

// Types are the same for everybody on a server: those of a project begin with its name, so that no service of another answers its calls, and
// its contracts have what models need.
func TestInit_ContractsAreTheProjectsOwn(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, example := range examples {
		p := project{Name: "p_" + name, Template: name, Language: "go", example: example, language: languages(name)["go"], Module: "agentd"}
		if err := p.make(); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(p.Name, example.Contract)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := contracts.Parse(file, text)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(c.Type, p.Name+".") || !strings.HasPrefix(c.URI, "#/"+p.Name+"/") {
			t.Errorf("%s is of the type %s, with the URI %s", file, c.Type, c.URI)
		}
		for _, f := range contractlint.Lint(c) {
			if f.Severity != schema.Note {
				t.Errorf("%s: %s: %s", file, f.Path, f.Message)
			}
		}
	}
}

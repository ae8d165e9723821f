// Package initialize is agentd init.
package initialize

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/config"
)

// templates has folders of files, whose names end in .tmpl: common for every project, language for all of a language, and for each
// template common and its service in each language.
//
//go:embed all:templates
var templates embed.FS

// language is what a project's service can be written in.
type language struct {
	// Prepare is what has to be done once before anything runs. It makes or finds Program, which is the service itself; Start starts
	// it as it is in the folder now.
	Prepare string `json:"prepare,omitempty"`
	Start   string `json:"start"`
	Program string `json:"program"`
	// Image has what the service needs.
	Image string `json:"image"`
}

// languages has what a project of a name can be written in. Go gives the program of the service the name of its module.
func languages(name string) map[string]language {
	return map[string]language{
		"go":     {"go mod tidy && go build -o bin/ ./...", "go run .", "bin/" + name, "golang:1.26"},
		"node":   {"npm install", "node service.mjs", "node service.mjs", "node:22-slim"},
		"python": {"", "python3 service.py", "python3 service.py", "python:3.13-slim"},
	}
}

// example is what a template shows.
type example struct {
	// Message is what to say to the agent, as its scripted model expects it.
	Message string `json:"message"`
	// Contract is the service's, and Call data of a call of it.
	Contract string `json:"contract"`
	Call     string `json:"call"`
}

var examples = map[string]example{
	"minimal":   {"How is the weather in Bern?", "contracts/weather.json", `{"city": "Bern"}`},
	"approvals": {"Order A-7 came broken, I want my 80 euros back.", "contracts/refund.json", `{"order": "A-7", "euros": 80}`},
	"planner": {
		"How do the orders A-7 and A-8 of Ada stand? Tell her, too.", "contracts/mail.json",
		`{"to": "ada@example.org", "text": "Your orders are on their way."}`,
	},
}

// validName is what an agent, a folder and a module may all be called.
var validName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

// project is what templates are over.
type project struct {
	Name string `json:"name"`
	// Template is a key of examples, and Language one of languages.
	Template string `json:"template"`
	Language string `json:"language"`
	example
	language
	// Source is the folder of the checkout of agentd that has the service's package; Module is the path of agentd's Go module.
	Source string `json:"source"`
	Module string `json:"module"`
	// Binary is the path of agentd.
	Binary string   `json:"binary"`
	Files  []string `json:"files"`
}

// Command is agentd init.
func Command(a *cli.App) *cobra.Command {
	p := project{Module: "agentd"}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Path != "" {
		p.Module = info.Main.Path
	}
	cmd := &cobra.Command{
		Use:   "init NAME",
		Short: "Make a project: an agent, a contract, and a service that answers its calls",
		Long: "init makes the folder NAME with an agent of that name, the contract of one service and the service itself, which run at once\n" +
			"with agentd dev and a scripted model: its README.md says how. It changes nothing that exists.",
		Example: "  agentd init clerk --language python --source ~/agentd\n  agentd init desk --template approvals --source ~/agentd",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			p.Name, p.language, p.example = args[0], languages(args[0])[p.Language], examples[p.Template]
			if !validName.MatchString(p.Name) {
				return cli.Usagef("%q: want a name of lower-case letters, digits and underscores that begins with a letter, such as clerk", p.Name)
			}
			if p.Start == "" {
				return cli.Usagef("--language %q: want go, node or python", p.Language)
			}
			if p.Message == "" {
				return cli.Usagef("--template %q: want minimal, approvals or planner", p.Template)
			}
			source, err := filepath.Abs(p.Source)
			if err != nil {
				return err
			}
			if _, err := os.Stat(filepath.Join(source, "sdk", "wire")); err != nil {
				return cli.Usagef("--source %s: want the folder of a checkout of agentd, which has sdk/python, sdk/node and the Go module", p.Source)
			}
			binary, err := os.Executable()
			if err != nil {
				return err
			}
			p.Source, p.Binary = filepath.ToSlash(source), filepath.ToSlash(binary)
			if err := p.make(); err != nil {
				return err
			}
			return a.Print(p, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "made %s; see %s\n", p.Name, filepath.Join(p.Name, "README.md"))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&p.Template, "template", "minimal", "what the project shows: minimal, approvals (a person decides on some calls), or planner (steps, and tools of an MCP server)")
	cmd.Flags().StringVar(&p.Language, "language", "python", "language of the service: go, node or python")
	cmd.Flags().StringVar(&p.Source, "source", ".", "folder of a checkout of agentd, which has the service's package")
	return cmd
}

// Folder is where agentd is.
func (p *project) Folder() string { return path.Dir(p.Binary) }

// make writes the project into a folder that must not exist.
func (p *project) make() error {
	if err := os.Mkdir(p.Name, 0o750); errors.Is(err, fs.ErrExist) {
		return cli.Usagef("%s exists: choose another name, or remove it", p.Name)
	} else if err != nil {
		return err
	}
	for _, folder := range []string{"common", "language/" + p.Language, p.Template + "/common", p.Template + "/" + p.Language} {
		files, err := fs.Sub(templates, "templates/"+folder)
		if err != nil {
			return err
		}
		if err := fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			return p.render(files, name)
		}); err != nil {
			return err
		}
	}
	return p.write("agentd.schema.json", config.Schema())
}

// render writes what a template makes.
func (p *project) render(files fs.FS, name string) error {
	t, err := template.ParseFS(files, name)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := t.ExecuteTemplate(&text, path.Base(name), p); err != nil {
		return err
	}
	return p.write(strings.TrimSuffix(name, ".tmpl"), text.Bytes())
}

func (p *project) write(name string, data []byte) error {
	at := filepath.Join(p.Name, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(at), 0o750); err != nil {
		return err
	}
	p.Files = append(p.Files, name)
	return os.WriteFile(at, data, 0o644)
}

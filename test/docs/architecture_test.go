package docs

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentd/internal/golden"
)

// room is a row of the table in docs/architecture.md: a package, or a folder of packages ("cmd/agentd/*"), and the packages of
// agentd that it may import, of which those that end in "/…" stand for all below.
type room struct {
	name    string
	imports []string
}

// files is the linter's pattern of the room's sources.
func (r room) files() string { return "**/" + r.name + "/*.go" }

// holds reports whether a package is the room, or one of its folder.
func (r room) holds(pkg string) bool {
	folder, family := strings.CutSuffix(r.name, "*")
	if !family {
		return pkg == r.name
	}
	rest, ok := strings.CutPrefix(pkg, folder)
	return ok && !strings.Contains(rest, "/")
}

var (
	roomRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\| ([^|]+) \\|$")
	quoted  = regexp.MustCompile("`([^`]+)`")
)

// rooms reads the table.
func rooms(t *testing.T) []room {
	t.Helper()
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []room
	for _, row := range roomRow.FindAllStringSubmatch(string(page), -1) {
		r := room{name: row[1]}
		for _, name := range quoted.FindAllStringSubmatch(row[2], -1) {
			pkg := name[1]
			if top, _, _ := strings.Cut(pkg, "/"); !slices.Contains([]string{"sdk", "cmd", "internal", "test"}, top) {
				pkg = "internal/" + pkg
			}
			r.imports = append(r.imports, pkg)
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		t.Fatal("docs/architecture.md has no table of packages")
	}
	return all
}

// module is the path of the module, which make module changes.
func module(t *testing.T) string { return strings.TrimSpace(list(t, "-m")) }

// list returns what go list says.
func list(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// Every package has its row, and no row is about a package that is gone.
func TestArchitecture_NamesEveryPackage(t *testing.T) {
	t.Parallel()
	all, used, path := rooms(t), map[string]bool{}, module(t)
	for pkg := range strings.FieldsSeq(list(t, "./internal/...", "./sdk/...", "./cmd/...")) {
		pkg = strings.TrimPrefix(pkg, path+"/")
		var held []string
		for _, r := range all {
			if r.holds(pkg) {
				held = append(held, r.name)
				used[r.name] = true
			}
		}
		if len(held) != 1 {
			t.Errorf("%s has the rows %q in docs/architecture.md; it must have one", pkg, held)
		}
	}
	for _, r := range all {
		if !used[r.name] {
			t.Errorf("docs/architecture.md has a row for %s, which is not a package", r.name)
		}
	}
}

// The linter's import rules are those of the table; go test ./test/docs -run Architecture -update writes them.
func TestArchitecture_IsTheLintersRule(t *testing.T) {
	const (
		file  = "../../.golangci.yml"
		begin = "        # From the table in docs/architecture.md, by go test ./test/docs -run Architecture -update:\n"
		end   = "        # The end of what is from docs/architecture.md.\n"
	)
	config, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(config), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s does not have the lines\n%s%s", file, begin, end)
	}
	path := module(t)
	var rules strings.Builder
	for _, r := range rooms(t) {
		fmt.Fprintf(&rules, "        %q:\n          files: [%q, \"!$test\"]\n          list-mode: lax\n", "imports of "+r.name, r.files())
		fmt.Fprintf(&rules, "          deny: [{pkg: %s, desc: \"docs/architecture.md does not let %s import it\"}]\n", path, r.name)
		if len(r.imports) > 0 {
			allowed := make([]string, len(r.imports))
			for i, pkg := range r.imports {
				allowed[i] = path + "/" + pkg + "$"
				if all, ok := strings.CutSuffix(pkg, "…"); ok {
					allowed[i] = path + "/" + all
				}
			}
			fmt.Fprintf(&rules, "          allow: [%s]\n", strings.Join(allowed, ", "))
		}
	}
	golden.Check(t, file, []byte(before+begin+rules.String()+end+after))
}

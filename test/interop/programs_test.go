package interop

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"agentd/sdk"
	"agentd/test/missing"
)

// program is a service in another language.
type program struct {
	name     string
	contract func(*testing.T) sdk.Contract
	// command makes the program ready to be run, or skips the test when what it needs is not installed.
	command func(*testing.T) command
}

// command is how a program is run. env is added to the environment.
type command struct{ args, env []string }

var programs = []program{
	{name: "arvo", contract: arvoContract, command: arvoCommand},
	{name: "node", contract: docContract, command: docsNodeCommand},
	{name: "python", contract: docContract, command: pythonCommand},
	{name: "python-sdk", contract: docContract, command: pythonSDKCommand},
	{name: "node-sdk", contract: docContract, command: nodeSDKCommand},
	{name: "shell", contract: docContract, command: shellCommand},
	{name: "shell-binary", contract: docContract, command: binaryShellCommand},
	{name: "go", contract: docContract, command: goCommand},
}

func lookPath(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			missing.Optional(t, "%s is not installed", name)
		}
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func pythonCommand(t *testing.T) command {
	lookPath(t, "python3")
	return command{args: []string{"python3", absolute(t, "python/forecast.py")}}
}

// pythonSDKCommand is a service of sdk/python.
func pythonSDKCommand(t *testing.T) command { return pythonSDKService(t, "forecast_sdk.py") }

func pythonSDKService(t *testing.T, file string) command {
	t.Helper()
	lookPath(t, "python3")
	return command{
		args: []string{"python3", absolute(t, "python/"+file), contractFile(t)},
		env:  []string{"PYTHONPATH=" + absolute(t, "../../sdk/python"), "PYTHONDONTWRITEBYTECODE=1"},
	}
}

// nodeSDKCommand is a service of sdk/node.
func nodeSDKCommand(t *testing.T) command { return nodeSDKService(t, "forecast_sdk.mjs") }

func nodeSDKService(t *testing.T, file string) command {
	t.Helper()
	return command{args: []string{"node", filepath.Join(nodeSDKFolder(t), file), contractFile(t)}}
}

// contractFile is the contract as JSON: YAML needs a package.
func contractFile(t *testing.T) string {
	t.Helper()
	contract, err := json.Marshal(docContract(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "weather.json")
	if err := os.WriteFile(path, contract, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// nodeSDKFolder has a copy of sdk/node as the package agentd, what it needs, and the programs that use it.
func nodeSDKFolder(t *testing.T) string {
	t.Helper()
	dir := nodeFolder(t)
	if err := os.CopyFS(filepath.Join(dir, "agentd"), os.DirFS("../../sdk/node")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"answers_sdk.mjs", "client_conformance.mjs", "closed_sdk.mjs", "client_sdk.mjs", "costing_sdk.mjs", "ended_sdk.mjs", "forecast_sdk.mjs",
		"others_sdk.mjs", "outcome_sdk.mjs", "queued_sdk.mjs", "unsendable_sdk.mjs",
	} {
		source, err := os.ReadFile(filepath.Join("node", name))
		if err == nil {
			// A package finds itself by its own name, and here the programs are beside it.
			err = os.WriteFile(filepath.Join(dir, name), bytes.Replace(source, []byte(`"agentd"`), []byte(`"./agentd/index.js"`), 1), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func shellCommand(t *testing.T) command {
	lookPath(t, "bash", "jq")
	nats, err := natsCLI()
	if err != nil {
		missing.Optional(t, "the nats CLI cannot be built: %v", err)
	}
	return command{
		args: []string{"bash", absolute(t, "shell/forecast.sh")},
		env:  []string{"PATH=" + filepath.Dir(nats) + string(os.PathListSeparator) + os.Getenv("PATH")},
	}
}

func binaryShellCommand(t *testing.T) command {
	c := shellCommand(t)
	c.env = append(c.env, "MODE=binary")
	return c
}

func goCommand(t *testing.T) command {
	binary := filepath.Join(t.TempDir(), "forecast")
	if err := output("foreign", "go", "mod", "download", "github.com/nats-io/nats.go"); err != nil {
		missing.Optional(t, "the modules of foreign/go.mod cannot be downloaded: %v", err)
	}
	if err := output("foreign", "go", "build", "-o", binary, "./forecast"); err != nil {
		t.Fatal(err)
	}
	return command{args: []string{binary}}
}

// docsNodeCommand is the Node program of docs/services.md.
func docsNodeCommand(t *testing.T) command {
	dir := nodeFolder(t)
	path := filepath.Join(dir, "service.mjs")
	if err := os.WriteFile(path, []byte(docBlock(t, "js", "weather.forecast")), 0o600); err != nil {
		t.Fatal(err)
	}
	return command{args: []string{"node", path}}
}

func arvoCommand(t *testing.T) command {
	dir := nodeFolder(t)
	for _, name := range []string{"bridge.mjs", "forecast.mjs"} {
		source, err := os.ReadFile(filepath.Join("node", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), source, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return command{args: []string{
		"node", filepath.Join(dir, "bridge.mjs"), "svc_local_com_weather_forecast", filepath.Join(dir, "forecast.mjs"),
	}}
}

// nodeFolder is a folder in which the packages of node/package-lock.json are installed.
func nodeFolder(t *testing.T) string {
	t.Helper()
	lookPath(t, "node", "npm")
	packages, err := nodePackages()
	if err != nil {
		missing.Optional(t, "the packages from npm cannot be installed: %v", err)
	}
	dir := t.TempDir()
	if err := os.Symlink(packages, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// cached is a folder that outlives the tests, named after what key holds. fill fills it in another place, so that an
// interrupted attempt leaves nothing that looks whole.
func cached(name string, key []byte, fill func(dir string) error) (string, error) {
	root, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256(key)
	dir := filepath.Join(root, "agentd-interop", name+"-"+hex.EncodeToString(digest[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	if err != nil {
		return "", err
	}
	err = fill(fresh)
	if err == nil {
		if err = os.Rename(fresh, dir); errors.Is(err, fs.ErrExist) {
			err = nil // another process was quicker
		}
	}
	return dir, errors.Join(err, os.RemoveAll(fresh))
}

// output runs a command and puts what it said into the error.
func output(dir string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, args[0], err, out)
	}
	return nil
}

var nodePackages = sync.OnceValues(func() (string, error) {
	lock, err := os.ReadFile("node/package-lock.json")
	if err != nil {
		return "", err
	}
	dir, err := cached("node", lock, func(dir string) error {
		manifest, err := os.ReadFile("node/package.json")
		if err != nil {
			return err
		}
		for name, text := range map[string][]byte{"package.json": manifest, "package-lock.json": lock} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				return err
			}
		}
		return output(dir, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1")
	})
	return filepath.Join(dir, "node_modules"), err
})

// natsCLI builds the nats command once for this version of foreign/go.sum; it takes a minute.
var natsCLI = sync.OnceValues(func() (string, error) {
	sum, err := os.ReadFile("foreign/go.sum")
	if err != nil {
		return "", err
	}
	dir, err := cached("nats", sum, func(dir string) error {
		return output("foreign", "go", "build", "-o", filepath.Join(dir, "nats"), "github.com/nats-io/natscli/nats")
	})
	return filepath.Join(dir, "nats"), err
})

package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"agentd/sdk"
)

// mark stands in the files of testdata/faults where a fault is, and is taken out of them.
const mark = "«"

// Each file of testdata/faults is a broken configuration, with a mark at every place that is at fault. Before it stand the
// messages, in the order of the places. Every fault is found, at exactly its line and column.
func TestLoad_FindsEveryFaultAtItsPlace(t *testing.T) {
	t.Parallel()
	cases, err := filepath.Glob("testdata/faults/*.txtar")
	if err != nil || len(cases) < 29 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, name := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			files, places := map[string]string{}, []string{}
			slices.SortFunc(archive.Files, func(a, b txtar.File) int { return strings.Compare(a.Name, b.Name) })
			for _, f := range archive.Files {
				text := string(f.Data)
				for {
					before, after, marked := strings.Cut(text, mark)
					if !marked {
						break
					}
					line := before[strings.LastIndex(before, "\n")+1:]
					places = append(places, fmt.Sprintf("%s:%d:%d", f.Name, strings.Count(before, "\n")+1, utf8.RuneCountInString(line)+1))
					text = before + after
				}
				files[f.Name] = text
			}
			path := write(t, files)
			loaded, err := Load(path)
			if err == nil {
				err = loaded.CheckTools()
			}
			faults, ok := errors.AsType[Faults](err)
			if !ok {
				t.Fatalf("no faults: %v", err)
			}
			var messages, at []string
			for _, f := range faults {
				messages = append(messages, strings.ReplaceAll(f.Message, filepath.Dir(path)+"/", ""))
				if place := strings.TrimPrefix(f.Position.String(), filepath.Dir(path)+"/"); len(at) == 0 || at[len(at)-1] != place {
					at = append(at, place)
				}
			}
			if diff := cmp.Diff(places, at); diff != "" {
				t.Errorf("places (-want +got):\n%s\n%v", diff, err)
			}
			if *update {
				archive.Comment = []byte(strings.Join(messages, "\n") + "\n")
				if err := os.WriteFile(name, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(strings.TrimSpace(string(archive.Comment)), strings.Join(messages, "\n")); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
			if strings.Contains(err.Error(), "c2VjcmV0") || strings.Contains(err.Error(), "sk-") {
				t.Errorf("a secret is shown: %v", err)
			}
		})
	}
}

// All faults of all files are told at once.
func TestLoad_ListsEveryFaultOfAllFiles(t *testing.T) {
	t.Parallel()
	_, err := Load("testdata/broken/agentd.yaml")
	if err == nil {
		t.Fatal("loaded")
	}
	const golden = "testdata/broken/faults.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(err.Error()+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, readErr := os.ReadFile(golden)
	if readErr != nil {
		t.Fatal(readErr)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(err.Error()+"\n", "\n")); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	if sdk.AsError(err).Code != sdk.CodeConfig || !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		t.Errorf("error %T", err)
	}
	if strings.Contains(err.Error(), "sk-secret") {
		t.Errorf("a secret is shown: %v", err)
	}
}

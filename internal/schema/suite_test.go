package schema

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// suiteFolder holds the required tests of the JSON Schema test suite; README.md there says which.
const suiteFolder = "testdata/suite"

type suiteGroup struct {
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Tests       []suiteTest     `json:"tests"`
}

type suiteTest struct {
	Description string          `json:"description"`
	Data        json.RawMessage `json:"data"`
	Valid       bool            `json:"valid"`
}

func TestSchema_PassesTheJSONSchemaTestSuite(t *testing.T) {
	t.Parallel()
	for _, draft := range []struct {
		folder  string
		dialect dialect
		// least is the number of tests that a truncated copy of the suite would not reach.
		least int
	}{{"draft7", draft7, 900}, {"draft2019-09", draft2019, 1200}, {"draft2020-12", draft2020, 1240}} {
		t.Run(draft.folder, func(t *testing.T) {
			t.Parallel()
			files, err := filepath.Glob(filepath.Join(suiteFolder, draft.folder, "*.json"))
			if err != nil {
				t.Fatal(err)
			}
			ran, excepted := 0, 0
			for _, file := range files {
				name := draft.folder + "/" + filepath.Base(file)
				for _, group := range readSuite(t, file) {
					if slices.Contains(suiteExceptions[name], group.Description) {
						checkException(t, name, group, draft.dialect)
						excepted += len(group.Tests)
						continue
					}
					checkGroup(t, name, group, draft.dialect)
					ran += len(group.Tests)
				}
			}
			if ran < draft.least {
				t.Errorf("only %d tests ran", ran)
			}
			t.Logf("%d tests passed, %d excepted", ran, excepted)
		})
	}
}

func readSuite(t *testing.T, file string) []suiteGroup {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var groups []suiteGroup
	if err := json.Unmarshal(data, &groups); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return groups
}

// inDialect declares the dialect of schemas that leave it to the folder. It is Compile that is tested: schemas of
// contracts must also admit objects only, which the suite's do not.
func inDialect(t *testing.T, schema json.RawMessage, d dialect) json.RawMessage {
	t.Helper()
	var object map[string]json.RawMessage
	if err := json.Unmarshal(schema, &object); err != nil || object["$schema"] != nil {
		return schema // boolean schemas are the same in every dialect
	}
	object["$schema"] = json.RawMessage(compactJSON(metaschemas[d]))
	return json.RawMessage(compactJSON(object))
}

func checkGroup(t *testing.T, file string, group suiteGroup, d dialect) {
	t.Helper()
	schema, err := Compile(inDialect(t, group.Schema, d))
	if err != nil {
		t.Errorf("%s, %q: %v", file, group.Description, err)
		return
	}
	for _, test := range group.Tests {
		if faults := schema.Validate(test.Data); (len(faults) == 0) != test.Valid {
			t.Errorf("%s, %q, %q: want valid %v, faults %v", file, group.Description, test.Description, test.Valid, faults)
		}
	}
}

// checkException wants a group to be refused outright: what compiles must judge as the suite does.
func checkException(t *testing.T, file string, group suiteGroup, d dialect) {
	t.Helper()
	if _, err := Compile(inDialect(t, group.Schema, d)); err == nil {
		t.Errorf("%s, %q compiles: it is not an exception any more", file, group.Description)
	}
}

func TestSuiteExceptions_NameGroupsThatExist(t *testing.T) {
	t.Parallel()
	for name, excepted := range suiteExceptions {
		groups := readSuite(t, filepath.Join(suiteFolder, filepath.FromSlash(name)))
		for _, description := range excepted {
			if !slices.ContainsFunc(groups, func(g suiteGroup) bool { return g.Description == description }) {
				t.Errorf("%s has no group %q", name, description)
			}
		}
	}
}

// suiteExceptions are the groups of the suite that are refused when they are compiled, by file. docs/contracts.md says why.
var suiteExceptions = map[string][]string{
	"draft2019-09/refRemote.json": {
		`remote ref`,
		`fragment within remote ref`,
		`anchor within remote ref`,
		`ref within remote ref`,
		`base URI change`,
		`base URI change - change folder`,
		`base URI change - change folder in subschema`,
		`root ref in remote ref`,
		`remote ref with ref to defs`,
		`Location-independent identifier in remote ref`,
		`retrieved nested refs resolve relative to their URI not $id`,
		`remote HTTP ref with different $id`,
		`remote HTTP ref with different URN $id`,
		`remote HTTP ref with nested absolute ref`,
		`$ref to $ref finds detached $anchor`,
	},
	"draft2019-09/vocabulary.json": {
		`schema that uses custom metaschema with with no validation vocabulary`,
		`ignore unrecognized optional vocabulary`,
	},
	"draft2020-12/dynamicRef.json": {
		`strict-tree schema, guards against misspelled properties`,
		`tests for implementation dynamic anchor and reference link`,
		`$ref and $dynamicAnchor are independent of order - $defs first`,
		`$ref and $dynamicAnchor are independent of order - $ref first`,
		`$ref to $dynamicRef finds detached $dynamicAnchor`,
	},
	"draft2020-12/refRemote.json": {
		`remote ref`,
		`fragment within remote ref`,
		`anchor within remote ref`,
		`ref within remote ref`,
		`base URI change`,
		`base URI change - change folder`,
		`base URI change - change folder in subschema`,
		`root ref in remote ref`,
		`remote ref with ref to defs`,
		`Location-independent identifier in remote ref`,
		`retrieved nested refs resolve relative to their URI not $id`,
		`remote HTTP ref with different $id`,
		`remote HTTP ref with different URN $id`,
		`remote HTTP ref with nested absolute ref`,
		`$ref to $ref finds detached $anchor`,
	},
	"draft2020-12/vocabulary.json": {
		`schema that uses custom metaschema with with no validation vocabulary`,
		`ignore unrecognized optional vocabulary`,
	},
	"draft7/refRemote.json": {
		`remote ref`,
		`fragment within remote ref`,
		`ref within remote ref`,
		`base URI change`,
		`base URI change - change folder`,
		`base URI change - change folder in subschema`,
		`root ref in remote ref`,
		`remote ref with ref to definitions`,
		`Location-independent identifier in remote ref`,
		`retrieved nested refs resolve relative to their URI not $id`,
		`$ref to $ref finds location-independent $id`,
	},
}

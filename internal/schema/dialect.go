package schema

import (
	"slices"
	"strings"

	"agentd/sdk"
)

// dialect is a version of JSON Schema.
type dialect int

// The dialects, in order of age.
const (
	draft4 dialect = iota
	draft6
	draft7
	draft2019
	draft2020
)

// metaschemas are the values of $schema, without a trailing "#" and in the order of the dialects.
var metaschemas = []string{
	draft4:    "http://json-schema.org/draft-04/schema",
	draft6:    "http://json-schema.org/draft-06/schema",
	draft7:    "http://json-schema.org/draft-07/schema",
	draft2019: "https://json-schema.org/draft/2019-09/schema",
	draft2020: "https://json-schema.org/draft/2020-12/schema",
}

// legacy reports whether nothing counts beside a $ref in the dialect.
func (d dialect) legacy() bool { return d <= draft7 }

// assertsFormats reports whether the dialect checks formats.
func (d dialect) assertsFormats() bool { return d <= draft7 }

// idKeyword names a schema, as the base that references in it are relative to.
func (d dialect) idKeyword() string {
	if d == draft4 {
		return "id"
	}
	return keyID
}

// dialectOf reads $schema; a schema without one is of 2020-12.
func dialectOf(root any) (dialect, *sdk.Fault) {
	object, _ := root.(map[string]any)
	declared, ok := object[keySchema]
	if !ok {
		return draft2020, nil
	}
	uri, _ := declared.(string)
	uri = strings.TrimSuffix(uri, "#")
	for d, known := range metaschemas {
		if uri == known || strings.Replace(uri, "https:", "http:", 1) == known {
			return dialect(d), nil
		}
	}
	return 0, &sdk.Fault{
		Path: "$.$schema", Expected: "one of " + strings.Join(metaschemas, ", "), Got: show(declared),
	}
}

// isMetaschema reports whether uri, without fragment, is a schema that the validators have built in.
func isMetaschema(uri string) bool {
	return slices.Contains(metaschemas, uri)
}

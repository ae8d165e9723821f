package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"agentd/internal/clip"
	"agentd/sdk"
)

const (
	// MaxSchemaSize is the largest schema in bytes. It may nest as deep as all JSON here: sdk.MaxDepth.
	MaxSchemaSize = 256 << 10
	// maxCached bounds the compiled schemas that a process keeps, maxCachedBytes what they were compiled from: compiled they
	// take about fifty times as much memory.
	maxCached      = 2048
	maxCachedBytes = 2 << 20
)

// Schema is a compiled JSON Schema. Safe for concurrent use.
type Schema struct {
	raw  json.RawMessage
	tree *tree
	// violations validates a decoded document.
	violations func(doc any) []violation
}

var (
	compiled     = newCache(maxCached, maxCachedBytes)
	compilations atomic.Uint64
)

// Compilations counts the schemas that this process has compiled. It stands still while calls are served.
func Compilations() uint64 { return compilations.Load() }

// Compile returns the schema of raw, from a process-wide cache when the same bytes were compiled before. Its dialect is
// the one that $schema names (drafts 4, 6, 7, 2019-09, 2020-12), else 2020-12. In the last two, "format" is an annotation
// that is not checked, as the standard wants it. References must stay inside the document, or point to a dialect's own
// metaschema. Errors are *sdk.Error with CodeConfig and list every fault.
func Compile(raw json.RawMessage) (*Schema, error) { return compiled.get(raw) }

func compile(raw json.RawMessage) (*Schema, error) {
	compilations.Add(1)
	doc, faults := decodeSchema(raw)
	if len(faults) > 0 {
		return nil, schemaError(faults)
	}
	d, fault := dialectOf(doc)
	if fault != nil {
		return nil, schemaError([]sdk.Fault{*fault})
	}
	s := &Schema{raw: raw}
	s.tree, faults = newTree(doc, d)
	if len(s.tree.excess) > 0 {
		return nil, schemaError(s.tree.excess)
	}
	if len(faults) > 0 {
		return nil, schemaError(append(faults, metaFaults(doc, d)...))
	}
	s.violations, faults = validator(doc, d)
	if len(faults) > 0 {
		return nil, schemaError(faults)
	}
	return s, nil
}

// CompileObject is Compile for a schema whose data always is an object, such as those of a contract. The paths of faults
// begin at path, where the schema stands in its document.
func CompileObject(raw json.RawMessage, path string) (*Schema, []sdk.Fault) {
	schema, err := Compile(raw)
	if err != nil {
		e := sdk.AsError(err)
		faults := slices.Clone(e.Faults)
		for i := range faults {
			faults[i].Path = path + strings.TrimPrefix(faults[i].Path, "$")
		}
		return nil, faults
	}
	if !schema.IsObject() {
		return nil, []sdk.Fault{{Path: path, Expected: `a schema of objects: type "object" at its root`, Got: clip.Text(string(raw), maxShown)}}
	}
	return schema, nil
}

// metaFaults is what the dialect's metaschema says of a schema that is not compiled, because its references go wrong.
func metaFaults(doc any, d dialect) []sdk.Fault {
	meta, err := metaschema(d)
	if err != nil {
		return []sdk.Fault{libraryFault(err)}
	}
	return toFaults(doc, violationsIn(doc, meta.Validate(doc)))
}

func schemaError(faults []sdk.Fault) error {
	return &sdk.Error{Code: sdk.CodeConfig, Message: "the JSON Schema cannot be used", Faults: faults}
}

func decodeSchema(raw json.RawMessage) (any, []sdk.Fault) {
	if len(raw) > MaxSchemaSize {
		return nil, []sdk.Fault{{
			Path: "$", Expected: fmt.Sprintf("a schema of at most %d bytes", MaxSchemaSize), Got: plural(len(raw), "byte"),
		}}
	}
	doc, faults := decode(raw)
	if len(faults) == 0 && countValues(doc) > maxSchemaValues {
		faults = []sdk.Fault{{
			Path: "$", Expected: fmt.Sprintf("a schema of at most %d JSON values", maxSchemaValues), Got: "more",
		}}
	}
	if len(faults) == 0 && !isSchema(doc) {
		faults = []sdk.Fault{{Path: "$", Expected: "a JSON Schema: an object or a boolean", Got: show(doc)}}
	}
	return doc, faults
}

// Raw returns the schema as it was written. It must not be modified.
func (s *Schema) Raw() json.RawMessage { return s.raw }

// Dialect is the $schema of the dialect that the schema is read in, which it need not name itself.
func (s *Schema) Dialect() string { return metaschemas[s.tree.dialect] }

// IsObject reports whether the schema's root admits objects only: its type, or that of what it refers to, is "object".
func (s *Schema) IsObject() bool {
	// The tree has no cycle of references.
	for n := s.tree.root; n != nil; n = n.ref {
		switch declared := n.object[keyType].(type) {
		case string:
			return declared == typeObject
		case []any:
			return len(declared) == 1 && declared[0] == typeObject
		}
	}
	return false
}

// Validate returns every fault of data in a stable order: by place, then by text. None means that data is valid. Data that
// takes more than maxChecks is refused without being validated.
func (s *Schema) Validate(data json.RawMessage) []sdk.Fault {
	doc, faults := decode(data)
	if len(faults) > 0 {
		return faults
	}
	if fault := s.tree.affordable(doc); fault != nil {
		return []sdk.Fault{*fault}
	}
	return toFaults(doc, s.violations(doc))
}

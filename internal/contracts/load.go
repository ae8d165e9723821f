package contracts

import (
	"encoding/json"
	"os"

	"agentd/sdk/wire"

	"github.com/Masterminds/semver/v3"

	"agentd/internal/config/strict"
	"agentd/sdk"
)

// Load reads a contract file, YAML or JSON. The error is strict.Faults with everything that is wrong.
func Load(path string) (sdk.Contract, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return sdk.Contract{}, sdk.Errorf(sdk.CodeConfig, "contract file cannot be read").WithCause(err)
	}
	return Parse(path, data)
}

// Parse is Load for a file that has been read; name tells its format and stands in the faults.
func Parse(name string, data []byte) (sdk.Contract, error) {
	var r strict.Reader
	contract := Read(&r, name, data)
	return contract, r.Err()
}

// contractFile is the form of a contract file (docs/wire.md, "Contracts").
type contractFile struct {
	At          strict.Position
	URI         strict.Value[string] `yaml:"uri"`
	Type        strict.Value[string] `yaml:"type"`
	Domain      strict.Value[string] `yaml:"domain"`
	Description strict.Value[string] `yaml:"description"`
	Labels      struct {
		ReadOnly    strict.Value[bool] `yaml:"read_only"`
		Destructive strict.Value[bool] `yaml:"destructive"`
		OpenWorld   strict.Value[bool] `yaml:"open_world"`
	} `yaml:"labels"`
	Versions strict.Entries[*versionFile] `yaml:"versions"`
}

type versionFile struct {
	At      strict.Position
	Accepts strict.JSON                 `yaml:"accepts"`
	Emits   strict.Entries[strict.JSON] `yaml:"emits"`
}

// Read is Parse for one of several files whose faults r collects. The contract is not to be used when it noted any.
func Read(r *strict.Reader, file string, data []byte) sdk.Contract {
	var f contractFile
	node := r.Parse(file, data)
	if node.Empty() {
		return sdk.Contract{}
	}
	r.Decode(node, &f)
	c := sdk.Contract{
		URI: f.URI.V, Type: f.Type.V, Domain: f.Domain.V, Description: f.Description.V,
		Versions: map[string]sdk.ContractVersion{},
		Labels: sdk.ToolLabels{
			ReadOnly: f.Labels.ReadOnly.V, Destructive: f.Labels.Destructive.V, OpenWorld: f.Labels.OpenWorld.V,
		},
	}
	if !node.Mapping() {
		return c
	}
	if c.URI == "" {
		r.Faultf(orAt(f.URI.Position, f.At), "a contract needs a uri")
	}
	r.Note(orAt(f.Type.Position, f.At), wire.CheckName(c.Type))
	r.Note(f.Domain.Position, wire.CheckDomain(c.Domain))
	if len(f.Versions) == 0 {
		r.Faultf(f.At, "a contract needs at least one version")
	}
	for _, v := range f.Versions {
		if version, ok := v.Value.read(r, v.Key, c.Type); ok {
			c.Versions[v.Key.V] = version
		}
	}
	return c
}

func (f *versionFile) read(r *strict.Reader, key strict.Value[string], contractType string) (sdk.ContractVersion, bool) {
	if _, err := semver.StrictNewVersion(key.V); err != nil {
		r.Faultf(key.Position, "version %q is not of the form 1.2.3", key.V)
	} else if key.V == Wildcard {
		r.Faultf(key.Position, "version %s is reserved for events that belong to no version", Wildcard)
	}
	if f == nil {
		r.Faultf(key.Position, "version %s is empty; want accepts and emits", key.V)
		return sdk.ContractVersion{}, false
	}
	if f.Accepts.Raw == nil {
		r.Faultf(key.Position, "version %s has no accepts", key.V)
	}
	CheckSchema(r, "accepts", f.Accepts)
	if len(f.Emits) == 0 {
		r.Faultf(key.Position, "version %s emits nothing; want at least one answer", key.V)
	}
	version := sdk.ContractVersion{Accepts: f.Accepts.Raw, Emits: map[string]json.RawMessage{}}
	for _, e := range f.Emits {
		r.Note(e.Key.Position, wire.CheckName(e.Key.V))
		if e.Key.V == wire.ErrorType(contractType) {
			r.Faultf(e.Key.Position, "%s is always possible and is not listed", e.Key.V)
		}
		if e.Value.Raw == nil {
			r.Faultf(e.Key.Position, "answer %s has no schema", e.Key.V)
		}
		CheckSchema(r, "emits "+e.Key.V, e.Value)
		version.Emits[e.Key.V] = e.Value.Raw
	}
	return version, true
}

// CheckSchema notes what is wrong with a schema of a contract. An absent one is left to the caller.
func CheckSchema(r *strict.Reader, what string, schema strict.JSON) {
	if schema.Raw == nil {
		return
	}
	_, faults := objectSchema(schema.Raw, "$")
	for _, f := range faults {
		r.Faultf(schema.Position, "%s: %s", what, f)
	}
}

func orAt(p, otherwise strict.Position) strict.Position {
	if p.Line > 0 {
		return p
	}
	return otherwise
}

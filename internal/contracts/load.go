package contracts

import (
	_ "embed"
	"encoding/json"
	"os"
	"slices"
	"sync"

	"github.com/Masterminds/semver/v3"

	"agentd/internal/schema"
	"agentd/internal/strict"
	"agentd/sdk"
	"agentd/sdk/wire"
)

//go:embed contract.schema.json
var fileSchema []byte

// FileSchema is the JSON Schema of contract files.
func FileSchema() []byte { return slices.Clone(fileSchema) }

var fileForm = sync.OnceValue(func() *strict.Form {
	s, err := schema.Compile(fileSchema)
	if err != nil {
		panic("contracts: contract.schema.json: " + err.Error()) // it is part of the program
	}
	return strict.NewForm(s)
})

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
	contract, _ := Read(&r, name, data)
	return contract, r.Err()
}

// Read is Parse for one of several files whose faults r collects, and also returns what the file has. The contract is not
// to be used when it noted any.
func Read(r *strict.Reader, file string, data []byte) (sdk.Contract, *strict.Node) {
	n := r.Parse(file, data)
	if !n.Present() {
		return sdk.Contract{}, n
	}
	r.Check(n, fileForm())
	var c sdk.Contract
	r.Decode(n, &c)
	r.Note(n.Get("domain"), wire.CheckDomain(c.Domain))
	for _, v := range n.Get("versions").Items() {
		if _, err := semver.StrictNewVersion(v.Name); err != nil {
			r.Faultf(v.Key, "version %q is not of the form 1.2.3", v.Name)
		} else if v.Name == Wildcard {
			r.Faultf(v.Key, "version %s is reserved for events that belong to no version", Wildcard)
		}
		r.Note(v.Get("accepts"), CheckSchema(v.Get("accepts").JSON()))
		for _, e := range v.Get("emits").Items() {
			if err := wire.CheckName(e.Name); err != nil {
				r.Faultf(e.Key, "%s", sdk.AsError(err).Message)
			}
			if e.Name == wire.ErrorType(c.Type) {
				r.Faultf(e.Key, "%s is always possible and is not listed", e.Name)
			}
			r.Note(e, CheckSchema(e.JSON()))
		}
	}
	return c, n
}

// CheckSchema returns everything that is wrong with a schema of a contract. An absent one is left to the caller.
func CheckSchema(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	if _, faults := schema.CompileObject(raw, "$"); len(faults) > 0 {
		return &sdk.Error{Code: sdk.CodeConfig, Message: "the JSON Schema cannot be used", Faults: faults}
	}
	return nil
}

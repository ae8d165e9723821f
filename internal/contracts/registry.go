package contracts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"agentd/internal/schema"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Registry is a state of the registry of contract versions: what is published, and what was removed. It is made by
// folding the registry's records in their order. Its zero value is empty. Safe for concurrent use while nothing is applied.
type Registry struct {
	versions map[string]Published
	// owners are types by the URIs that they were published with first: a broker lets others than operators publish versions of their own
	// types alone, but with whatever in them.
	owners map[string]string
}

// Published is a version of a contract in the registry.
type Published struct {
	// Contract has this version alone, as it was published.
	Contract sdk.Contract
	Version  string
	// Removed says that the version was taken back. Its content stays known, so that it never gets another.
	Removed bool
}

// isNamed reports whether a reference names the contract of the version. What can be a type is none's URI: whoever publishes the one could
// pass for the other.
func (p Published) isNamed(ref string) bool {
	return p.Contract.Type == ref || wire.CheckName(ref) != nil && wire.SameURI(p.Contract.URI, ref)
}

// RegistryKey is the key of a version in the registry's bucket: the token of the type, and the version with its dots as
// underscores and "+" as "=", which no version has itself.
func RegistryKey(contractType, version string) string {
	return wire.NameToken(contractType) + "." + strings.NewReplacer(".", "_", "+", "=").Replace(version)
}

// EncodeVersion is the registry's record of a version: the contract with that version alone, in canonical JSON.
func EncodeVersion(contract sdk.Contract, version string) ([]byte, error) {
	if _, err := CompileVersion(contract, version); err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(Pin(contract, version))
	if err != nil {
		return nil, fmt.Errorf("encode contract %s: %w", contract.URI, err)
	}
	return schema.Canonical(encoded)
}

// DecodeVersion is the inverse of EncodeVersion. The error says what is wrong with a record that others wrote.
func DecodeVersion(key string, record []byte) (Published, error) {
	var p Published
	if err := json.Unmarshal(record, &p.Contract); err != nil {
		return p, sdk.Errorf(sdk.CodeConfig, "registry record %s cannot be read", key).WithCause(err)
	}
	if len(p.Contract.Versions) != 1 {
		return p, sdk.Errorf(sdk.CodeConfig, "registry record %s has %d versions, want 1", key, len(p.Contract.Versions))
	}
	p.Version = Versions(p.Contract)[0]
	if _, err := semver.StrictNewVersion(p.Version); err != nil || RegistryKey(p.Contract.Type, p.Version) != key {
		return p, sdk.Errorf(sdk.CodeConfig, "registry record %s is that of version %q of contract %q", key, p.Version, p.Contract.Type)
	}
	if p.Contract.URI == "" || wire.CheckName(p.Contract.Type) != nil || wire.CheckDomain(p.Contract.Domain) != nil {
		return p, sdk.Errorf(sdk.CodeConfig, "registry record %s has no usable uri, type or domain", key)
	}
	return p, nil
}

// Apply folds the next record of a key into r. What a key was first published with stays: a record with other content is refused, whoever
// wrote it. So is one with a URI that was published with another type first.
func (r *Registry) Apply(key string, record []byte) error {
	next, err := DecodeVersion(key, record)
	if err != nil {
		return err
	}
	uri := wire.AbsoluteURI(next.Contract.URI)
	if owner, taken := r.owners[uri]; taken && owner != next.Contract.Type {
		return sdk.Errorf(sdk.CodeConflict, "registry record %s of %s has the uri %s, which is that of %s", key, next.Contract.Type, next.Contract.URI, owner)
	}
	if r.versions == nil {
		r.versions, r.owners = map[string]Published{}, map[string]string{}
	}
	known, ok := r.versions[key]
	if ok && !known.Same(next.Contract) {
		return sdk.Errorf(sdk.CodeConflict, "registry record %s has other content than what was published first, which stays", key)
	}
	if ok {
		next.Contract = known.Contract
	}
	r.versions[key], r.owners[uri] = next, next.Contract.Type
	return nil
}

// Remove folds the record of a version's removal into r. One that was never published is passed over.
func (r *Registry) Remove(key string) {
	if known, ok := r.versions[key]; ok {
		known.Removed = true
		r.versions[key] = known
	}
}

// Clone is a copy that further records do not change.
func (r *Registry) Clone() *Registry {
	return &Registry{versions: maps.Clone(r.versions), owners: maps.Clone(r.owners)}
}

// Same reports whether contract has the same content for p's version. Description and labels belong to no version: one
// keeps those that it was published with.
func (p Published) Same(contract sdk.Contract) bool {
	mine := p.Contract
	return wire.SameURI(mine.URI, contract.URI) && mine.Type == contract.Type && mine.Domain == contract.Domain &&
		SameContent(mine.Versions[p.Version], contract.Versions[p.Version])
}

// SameContent reports whether two versions are the same JSON, whatever its white space and order of members.
func SameContent(a, b sdk.ContractVersion) bool {
	encoded := func(v sdk.ContractVersion) json.RawMessage {
		raw, err := json.Marshal(v)
		if err != nil {
			return nil
		}
		if raw, err = schema.Canonical(raw); err != nil {
			return nil
		}
		return raw
	}
	x, y := encoded(a), encoded(b)
	return x != nil && bytes.Equal(x, y)
}

// List returns all versions, also removed ones, by type and then by version, the oldest first.
func (r *Registry) List() []Published {
	return slices.SortedFunc(maps.Values(r.versions), func(a, b Published) int {
		return cmp.Or(cmp.Compare(a.Contract.Type, b.Contract.Type), compareVersionNames(a.Version, b.Version))
	})
}

// Version returns a version of the contract with that type or URI, also a removed one.
func (r *Registry) Version(ref, version string) (Published, bool) {
	for _, p := range r.versions {
		if p.Version == version && p.isNamed(ref) {
			return p, true
		}
	}
	return Published{}, false
}

// Contract returns the contract with that type or URI and all its versions that are not removed. What belongs to no
// version is that of the newest. The error is CodeContractMissing.
func (r *Registry) Contract(ref string) (sdk.Contract, error) {
	whole, gone := r.versionsOf(ref)
	if len(whole.Versions) > 0 {
		return whole, nil
	}
	if len(gone.Versions) > 0 {
		return whole, sdk.Errorf(sdk.CodeContractMissing, "every version of contract %s was removed from the registry: %s",
			ref, strings.Join(Versions(gone), ", "))
	}
	return whole, sdk.Errorf(sdk.CodeContractMissing, "the registry has no contract %s; it has %s", ref, r.types())
}

// versionsOf is the contract with its versions that are published, and with those that were removed. What belongs to no version is that of
// the newest of them.
func (r *Registry) versionsOf(ref string) (published, removed sdk.Contract) {
	kept, gone := map[string]sdk.ContractVersion{}, map[string]sdk.ContractVersion{}
	for _, p := range r.List() {
		if !p.isNamed(ref) {
			continue
		}
		if p.Removed {
			removed, gone[p.Version] = p.Contract, p.Contract.Versions[p.Version]
		} else {
			published, kept[p.Version] = p.Contract, p.Contract.Versions[p.Version]
		}
	}
	published.Versions, removed.Versions = kept, gone
	return published, removed
}

// types lists the types in the registry, for errors.
func (r *Registry) types() string {
	var types []string
	for _, p := range r.List() {
		if !p.Removed && !slices.Contains(types, p.Contract.Type) {
			types = append(types, p.Contract.Type)
		}
	}
	const shown = 10
	switch {
	case len(types) == 0:
		return "none"
	case len(types) > shown:
		return fmt.Sprintf("%s and %d more", strings.Join(types[:shown], ", "), len(types)-shown)
	}
	return strings.Join(types, ", ")
}

// Resolve returns the version that a range means (see the function Resolve) of the contract with that type or URI, as it
// was published. The error is CodeContractMissing when nothing fits and CodeConfig when the range cannot be read.
func (r *Registry) Resolve(ref, rangeExpr string) (Published, error) {
	contract, err := r.Contract(ref)
	if err != nil {
		return Published{}, err
	}
	version, err := Resolve(contract, rangeExpr)
	if err != nil {
		if p, ok := r.Version(ref, rangeExpr); ok && p.Removed {
			return Published{}, sdk.Errorf(sdk.CodeContractMissing, "version %s of contract %s was removed from the registry; it has %s",
				rangeExpr, ref, strings.Join(Versions(contract), ", "))
		}
		return Published{}, err
	}
	p, _ := r.Version(contract.Type, version)
	return p, nil
}

// resolveForAgent is Resolve, and where nothing fits the newest removed version that does: its agent is served, and told
// that the contract is gone when it calls it.
func (r *Registry) resolveForAgent(ref, rangeExpr string) (Published, error) {
	p, err := r.Resolve(ref, rangeExpr)
	if err == nil {
		return p, nil
	}
	_, gone := r.versionsOf(ref)
	version, absent := Resolve(gone, rangeExpr)
	if absent != nil {
		return Published{}, err
	}
	p, _ = r.Version(gone.Type, version)
	return p, nil
}

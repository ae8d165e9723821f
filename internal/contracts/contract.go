package contracts

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"agentd/internal/schema"
	"agentd/sdk"
)

// Latest is the range of the newest version.
const Latest = "latest"

// Wildcard is the version in the dataschema of events that belong to no version, such as system errors. No contract has
// it.
const Wildcard = "0.0.0"

// Version is a compiled version of a contract.
type Version struct {
	Accepts *schema.Schema
	// Emits are the answers by event type.
	Emits map[string]*schema.Schema
}

// CompileVersion compiles one version of a contract. Errors are *sdk.Error: CodeContractMissing without such a
// version, else CodeConfig with every fault, whose paths begin at the contract.
func CompileVersion(contract sdk.Contract, version string) (*Version, error) {
	v, ok := contract.Versions[version]
	if !ok {
		return nil, sdk.Errorf(sdk.CodeContractMissing, "contract %s has no version %s; it has %s",
			contract.URI, version, strings.Join(Versions(contract), ", "))
	}
	compiled := &Version{Emits: map[string]*schema.Schema{}}
	var faults []sdk.Fault
	path := "$.versions[\"" + version + "\"]"
	compiled.Accepts, faults = schema.CompileObject(v.Accepts, path+".accepts")
	for _, emitted := range slices.Sorted(maps.Keys(v.Emits)) {
		schema, more := schema.CompileObject(v.Emits[emitted], path+".emits[\""+emitted+"\"]")
		compiled.Emits[emitted] = schema
		faults = append(faults, more...)
	}
	if len(faults) > 0 {
		return nil, &sdk.Error{
			Code: sdk.CodeConfig, Message: "contract " + contract.URI + " cannot be used", Faults: faults,
		}
	}
	return compiled, nil
}

// Resolve returns the version of contract that a range means: "" and "latest" are the highest (a pre-release only where
// there is nothing else), an exact version is itself, and others such as "^1", "~2.3" or ">=1.2, <3" are the highest that
// fits. The error is CodeContractMissing when nothing fits and CodeConfig when the range cannot be read.
func Resolve(contract sdk.Contract, rangeExpr string) (string, error) {
	rangeExpr = strings.TrimSpace(rangeExpr)
	if _, ok := contract.Versions[rangeExpr]; ok {
		return rangeExpr, nil
	}
	fits, err := parseRange(contract.URI, rangeExpr)
	if err != nil {
		return "", err
	}
	var best *semver.Version
	for _, text := range Versions(contract) {
		v, err := semver.StrictNewVersion(text)
		if err != nil || !fits(v) {
			continue
		}
		better := best == nil || (best.Prerelease() == "") == (v.Prerelease() == "") && v.GreaterThan(best)
		if better || best.Prerelease() != "" && v.Prerelease() == "" {
			best = v
		}
	}
	if best == nil {
		return "", sdk.Errorf(sdk.CodeContractMissing, "contract %s has no version for %q; it has %s",
			contract.URI, cmp.Or(rangeExpr, Latest), strings.Join(Versions(contract), ", "))
	}
	return best.Original(), nil
}

// parseRange returns what fits a range.
func parseRange(ref, rangeExpr string) (func(*semver.Version) bool, error) {
	if rangeExpr == "" || rangeExpr == Latest {
		return func(*semver.Version) bool { return true }, nil
	}
	constraint, err := semver.NewConstraint(rangeExpr)
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeConfig, "version range %q of contract %s: want a version, a range such as ^1, or %s",
			rangeExpr, ref, Latest).WithCause(err)
	}
	return constraint.Check, nil
}

// Versions lists the versions of a contract, the oldest first.
func Versions(contract sdk.Contract) []string {
	return slices.SortedFunc(maps.Keys(contract.Versions), compareVersionNames)
}

func compareVersionNames(a, b string) int {
	v, errA := semver.StrictNewVersion(a)
	w, errB := semver.StrictNewVersion(b)
	if errA != nil || errB != nil {
		return cmp.Compare(a, b)
	}
	return cmp.Or(v.Compare(w), cmp.Compare(a, b))
}

// Pin returns contract with that one version alone: what a spec keeps of a contract, so that a spec does not change when
// the contract gets another version.
func Pin(contract sdk.Contract, version string) sdk.Contract {
	contract.Versions = map[string]sdk.ContractVersion{version: contract.Versions[version]}
	return contract
}

// ParseSchemaRef splits the dataschema of an event, the inverse of sdk.SchemaRef. It is not ok unless the part after the
// last "/" is a semantic version; that may be Wildcard.
func ParseSchemaRef(dataschema string) (uri, version string, ok bool) {
	i := strings.LastIndexByte(dataschema, '/')
	if i <= 0 {
		return "", "", false
	}
	uri, version = dataschema[:i], dataschema[i+1:]
	if _, err := semver.StrictNewVersion(version); err != nil {
		return "", "", false
	}
	return uri, version, true
}

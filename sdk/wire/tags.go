package wire

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"agentd/sdk"
)

// TagsAttribute is the attribute of init events with the run's tags: key=value, separated by commas.
const TagsAttribute = "tags"

// Limits of the tags of a run: how many there are, and how long keys and values are, in bytes.
const (
	MaxTags     = 16
	MaxTagKey   = 32
	MaxTagValue = 128
)

const tagKeyForm = "1 to 32 of a-z, 0-9, _ . -"

// ParseTags reads tags as they are in the attribute: tenant=acme,order=7. An empty text has none. The error is an *sdk.Error with
// sdk.CodeInvalidEvent and every fault.
func ParseTags(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	tags := map[string]string{}
	var faults []sdk.Fault
	for i, pair := range strings.Split(text, ",") {
		key, value, is := strings.Cut(pair, "=")
		path := fmt.Sprintf("$.tags[%d]", i)
		if _, twice := tags[key]; twice {
			faults = append(faults, sdk.Fault{Path: path, Expected: "each key once", Got: key})
		}
		if !is {
			faults = append(faults, sdk.Fault{Path: path, Expected: "key=value", Got: pair})
			continue
		}
		tags[key] = value
	}
	if err := CheckTags(tags); err != nil {
		faults = append(faults, sdk.AsError(err).Faults...)
	}
	if len(faults) > 0 {
		return nil, badTags(faults)
	}
	return tags, nil
}

// FormatTags is what ParseTags reads, in the order of the keys.
func FormatTags(tags map[string]string) string {
	pairs := make([]string, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		pairs = append(pairs, key+"="+tags[key])
	}
	return strings.Join(pairs, ",")
}

// CheckTags says what is wrong with the tags of a run: an *sdk.Error with sdk.CodeInvalidEvent and every fault.
func CheckTags(tags map[string]string) error {
	var faults []sdk.Fault
	if len(tags) > MaxTags {
		faults = append(faults, sdk.Fault{Path: "$.tags", Expected: fmt.Sprintf("at most %d tags", MaxTags), Got: fmt.Sprint(len(tags))})
	}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if !tagKey(key) {
			faults = append(faults, sdk.Fault{Path: "$.tags", Expected: "a key of " + tagKeyForm, Got: fmt.Sprintf("%q", key)})
		}
		if v := tags[key]; len(v) > MaxTagValue || !utf8.ValidString(v) || strings.ContainsFunc(v, notInTag) {
			faults = append(faults, sdk.Fault{
				Path: "$.tags." + key, Expected: fmt.Sprintf("at most %d bytes of text without commas and control characters", MaxTagValue), Got: fmt.Sprintf("%q", v),
			})
		}
	}
	if len(faults) > 0 {
		return badTags(faults)
	}
	return nil
}

// CheckTagKey says what is wrong with the key of a tag, as an *sdk.Error with sdk.CodeInvalidEvent.
func CheckTagKey(key string) error {
	if !tagKey(key) {
		return sdk.Errorf(sdk.CodeInvalidEvent, "the key of a tag is %s, not %q", tagKeyForm, key)
	}
	return nil
}

func badTags(faults []sdk.Fault) error {
	return &sdk.Error{Code: sdk.CodeInvalidEvent, Message: "the tags are not valid", Faults: faults}
}

func tagKey(key string) bool {
	return key != "" && len(key) <= MaxTagKey && strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789_.-") == ""
}

func notInTag(r rune) bool { return r == ',' || unicode.IsControl(r) }

package schema

import (
	"encoding/json"
	"math/big"

	"github.com/xeipuuv/gojsonschema"
)

// formats are those that the older dialects check.
var formats = map[string]gojsonschema.FormatChecker{
	"date":                  gojsonschema.DateFormatChecker{},
	"time":                  gojsonschema.TimeFormatChecker{},
	"date-time":             gojsonschema.DateTimeFormatChecker{},
	"hostname":              gojsonschema.HostnameFormatChecker{},
	"email":                 gojsonschema.EmailFormatChecker{},
	"idn-email":             gojsonschema.EmailFormatChecker{},
	"ipv4":                  gojsonschema.IPV4FormatChecker{},
	"ipv6":                  gojsonschema.IPV6FormatChecker{},
	"uri":                   gojsonschema.URIFormatChecker{},
	"uri-reference":         gojsonschema.URIReferenceFormatChecker{},
	"iri":                   gojsonschema.URIFormatChecker{},
	"iri-reference":         gojsonschema.URIReferenceFormatChecker{},
	"uri-template":          gojsonschema.URITemplateFormatChecker{},
	"uuid":                  gojsonschema.UUIDFormatChecker{},
	"regex":                 boundedRegex{},
	"json-pointer":          gojsonschema.JSONPointerFormatChecker{},
	"relative-json-pointer": gojsonschema.RelativeJSONPointerFormatChecker{},
}

// Formats apply to text only; gojsonschema also refuses every number that has one.
func init() {
	for name, checker := range formats {
		gojsonschema.FormatCheckers.Add(name, textFormat{checker})
	}
}

func checkedFormat(format any) bool {
	name, _ := format.(string)
	return formats[name] != nil
}

type textFormat struct{ gojsonschema.FormatChecker }

func (f textFormat) IsFormat(input any) bool {
	_, isText := input.(string)
	return !isText || f.FormatChecker.IsFormat(input)
}

// prepareLegacy gives the tree's document the form in which gojsonschema reads it as the standard does: counts without a
// fraction (2.0), and no $id beside a $ref, which would change what the reference means. It returns the document's JSON.
func prepareLegacy(t *tree) []byte {
	for _, n := range t.nodes {
		for _, keyword := range countKeywords {
			if count, ok := n.object[keyword].(json.Number); ok {
				n.object[keyword] = wholeNumber(count)
			}
		}
		if _, isRef := n.object[keyRef].(string); isRef && t.dialect > draft4 {
			delete(n.object, keyID)
		}
	}
	return []byte(compactJSON(t.doc))
}

var countKeywords = []string{"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}

func wholeNumber(n json.Number) json.Number {
	if r, ok := new(big.Rat).SetString(n.String()); ok && r.IsInt() {
		return json.Number(r.Num().String())
	}
	return n
}

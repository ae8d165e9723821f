package schema

import (
	"errors"
	"net/mail"
	"regexp"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// formats are those that the older dialects check. What nil stands for, the validator checks.
var formats = map[string]func(text string) error{
	"date": nil, "time": nil, "date-time": nil, "hostname": nil, "email": nil, "ipv4": nil, "ipv6": nil, "uri": nil, "uri-reference": nil,
	"iri": nil, "iri-reference": nil, "uri-template": nil, "uuid": nil, "json-pointer": nil, "relative-json-pointer": nil,
	"regex": nil,
	"idn-email": func(text string) error {
		_, err := mail.ParseAddress(text)
		return err
	},
}

// unchecked are formats that the validator knows, and none of these dialects has.
var unchecked = []string{"duration", "period", "semver"}

func checkedFormat(format any) bool {
	name, _ := format.(string)
	_, checked := formats[name]
	return checked
}

// assertFormats has a compiler check these formats and no others.
func assertFormats(c *jsonschema.Compiler) {
	c.AssertFormat()
	for name, check := range formats {
		if check != nil {
			c.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(value any) error {
				if text, isText := value.(string); isText {
					return check(text)
				}
				return nil
			}})
		}
	}
	for _, name := range unchecked {
		c.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(any) error { return nil }})
	}
}

// boundedRegexp compiles an expression of a schema, or a text of the format "regex", within the bounds.
func boundedRegexp(text string) (jsonschema.Regexp, error) {
	if _, ok := patternSize(text); !ok {
		return nil, errPattern
	}
	return regexp.Compile(text)
}

var errPattern = errors.New("the expression passes a bound")

package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxFingerprint bounds the values that one fingerprint visits: references are written out, which may multiply them.
const maxFingerprint = 10_000

// fingerprint writes schemas so that two that judge the same have the same text, whatever their order of members, their
// annotations and the names behind their references.
type fingerprint struct {
	*tree
	text strings.Builder
	// open are the schemas being written, so that a recursive reference is written as the way back.
	open []*node
	// left is what may still be visited; below zero the text is incomplete.
	left int
}

// sameSchema reports whether two schemas surely judge the same.
func sameSchema(t *tree, n *node, other *tree, o *node) bool {
	a, b := fingerprint{tree: t, left: maxFingerprint}, fingerprint{tree: other, left: maxFingerprint}
	a.schema(n)
	b.schema(o)
	return a.left >= 0 && b.left >= 0 && a.text.String() == b.text.String()
}

// sameKeywords is sameSchema for some of their keywords.
func sameKeywords(t *tree, n *node, other *tree, o *node, keywords []string) bool {
	a, b := fingerprint{tree: t, left: maxFingerprint}, fingerprint{tree: other, left: maxFingerprint}
	a.keywords(n, keywords)
	b.keywords(o, keywords)
	return a.left >= 0 && b.left >= 0 && a.text.String() == b.text.String()
}

func (f *fingerprint) schema(n *node) {
	n = f.follow(n)
	if i := slices.Index(f.open, n); i >= 0 {
		fmt.Fprintf(&f.text, "^%d", len(f.open)-i)
		return
	}
	if n.object == nil {
		f.text.WriteString(strconv.FormatBool(!f.isFalse(n)))
		return
	}
	f.open = append(f.open, n)
	f.keywords(n, sortedKeys(n.object))
	f.open = f.open[:len(f.open)-1]
}

func (f *fingerprint) keywords(n *node, keywords []string) {
	f.text.WriteString("{")
	for _, keyword := range keywords {
		value, ok := n.object[keyword]
		switch keyword {
		case keySchema, keyID, "id", keyAnchor, keyDefs, keyDefinitions, keyDefault:
			continue
		}
		if !ok || slices.Contains(annotationKeywords, keyword) {
			continue
		}
		fmt.Fprintf(&f.text, "%q:", keyword)
		if keyword == keyRef && n.ref != nil {
			f.schema(n.ref)
		} else {
			f.value(value, n.child(keyword))
		}
		f.text.WriteString(",")
	}
	f.text.WriteString("}")
}

// value writes the value of a keyword, in which there may be schemas.
func (f *fingerprint) value(value any, at []string) {
	if f.left--; f.left < 0 {
		return
	}
	if n, ok := f.nodes[pointer(at)]; ok {
		f.schema(n)
		return
	}
	switch value := value.(type) {
	case map[string]any:
		f.text.WriteString("{")
		for _, name := range sortedKeys(value) {
			fmt.Fprintf(&f.text, "%q:", name)
			f.value(value[name], append(slices.Clip(at), name))
			f.text.WriteString(",")
		}
		f.text.WriteString("}")
	case []any:
		f.text.WriteString("[")
		for i, item := range value {
			f.value(item, append(slices.Clip(at), strconv.Itoa(i)))
			f.text.WriteString(",")
		}
		f.text.WriteString("]")
	default:
		f.text.WriteString(fixedText(value))
	}
}

// fixedText writes a JSON value so that equal values have equal texts, also 1.0 and 1.
func fixedText(value any) string {
	switch value := value.(type) {
	case json.Number:
		if r := rational(value); r != nil && r.IsInt() {
			return r.RatString()
		} else if r != nil {
			return ratText(r)
		}
		return value.String()
	case []any:
		items := make([]string, len(value))
		for i, item := range value {
			items[i] = fixedText(item)
		}
		return "[" + strings.Join(items, ",") + "]"
	case map[string]any:
		members := make([]string, 0, len(value))
		for _, name := range sortedKeys(value) {
			members = append(members, strconv.Quote(name)+":"+fixedText(value[name]))
		}
		return "{" + strings.Join(members, ",") + "}"
	default:
		return compactJSON(value)
	}
}

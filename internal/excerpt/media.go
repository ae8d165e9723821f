package excerpt

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// SplitMedia takes the images and sounds out of a result's canonical JSON: objects {"type": "image" | "audio", "data": BASE64,
// "mimeType": TYPE}, as MCP has them, and its resources with such a type. In the place of their content is the number of the
// medium, from 1. A result that has none is returned as it is.
func SplitMedia(data json.RawMessage) (json.RawMessage, []sdk.Media) {
	if !bytes.Contains(data, []byte(`"mimeType"`)) {
		return data, nil
	}
	var value any
	if json.Unmarshal(data, &value) != nil { // canonical numbers are floats
		return data, nil
	}
	var media []sdk.Media
	splitMedia(value, &media)
	if len(media) == 0 {
		return data, nil
	}
	rest, err := json.Marshal(value)
	if err == nil {
		rest, err = wire.Canonicalize(rest)
	}
	if err != nil {
		return data, nil // it was canonical before
	}
	return rest, media
}

// mediumMember is the member that has a medium's number.
const mediumMember = "medium"

func splitMedia(value any, media *[]sdk.Media) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			splitMedia(item, media)
		}
	case map[string]any:
		for _, content := range []string{"data", "blob"} {
			if m, ok := mediumIn(v, content); ok {
				*media = append(*media, m)
				delete(v, content)
				v[mediumMember] = len(*media)
				return
			}
		}
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			splitMedia(v[name], media)
		}
	}
}

// mediumIn is the medium that an object is, with its content in that member.
func mediumIn(object map[string]any, content string) (sdk.Media, bool) {
	mime, _ := object["mimeType"].(string)
	encoded, _ := object[content].(string)
	kind, _, _ := strings.Cut(mime, "/")
	if encoded == "" || kind != "image" && kind != "audio" {
		return sdk.Media{}, false
	}
	return sdk.Media{MIME: mime, Data: encoded}, true
}

package catalog

import (
	"encoding/json"
	"fmt"
	"testing"

	"agentd/sdk"
)

// Tools are indexed once, however many agents have them and however often those are compiled: no run, turn or worker's other agent pays for it.
func TestIndexes_AreMadeOncePerListOfTools(t *testing.T) {
	t.Parallel()
	list := func(of string) []sdk.ToolDefinition {
		return []sdk.ToolDefinition{{Name: of, Description: "Does " + of, Parameters: json.RawMessage(`{"type":"object"}`)}}
	}
	var x indexes
	first := x.of("digest 1", list("mend"))
	for range 3 {
		if x.of("digest 1", list("mend")) != first {
			t.Fatal("the same tools are indexed again")
		}
	}
	if x.of("digest 2", list("paint")) == first {
		t.Error("other tools have the same index")
	}
	for i := range 2 * keptVersions {
		x.of(fmt.Sprint("other ", i), list("mend"))
	}
	if len(x.words) > keptVersions {
		t.Errorf("%d indexes are kept, more than %d", len(x.words), keptVersions)
	}
}

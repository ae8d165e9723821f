package core_test

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
)

// TestJournalDoc_NamesEveryField compares the fields of an entry, and their order in each object, with the tables of
// docs/journal.md.
func TestJournalDoc_NamesEveryField(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/journal.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|[^|]*\\|[^|]*\\|[^|]*\\|$")
	for _, cells := range row.FindAllStringSubmatch(string(document), -1) {
		documented = append(documented, cells[1])
	}
	want, have := byObject(fieldsOf("", reflect.TypeFor[core.Entry]())), byObject(documented)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("-code +docs/journal.md:\n%s", diff)
	}
}

// byObject groups paths by the object they are in.
func byObject(paths []string) map[string][]string {
	objects := map[string][]string{}
	for _, path := range paths {
		object := path[:strings.LastIndex(path, ".")+1]
		objects[object] = append(objects[object], path)
	}
	return objects
}

// fieldsOf are the paths of all fields in the JSON of a type.
func fieldsOf(path string, of reflect.Type) []string {
	switch {
	case of == reflect.TypeFor[json.RawMessage]():
		return nil
	case of.Kind() == reflect.Pointer:
		return fieldsOf(path, of.Elem())
	case of.Kind() == reflect.Slice:
		return fieldsOf(path+"[]", of.Elem())
	case path == "absorbed": // it is as an entry is
		return nil
	case of.Kind() != reflect.Struct, strings.HasPrefix(path, "head.left."): // what is left is as it was in the head
		return nil
	}
	var fields []string
	for i := range of.NumField() {
		field := of.Field(i)
		if field.Anonymous {
			fields = append(fields, fieldsOf(path, field.Type)...)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch name {
		case "-":
			continue
		case "":
			name = field.Name
		}
		name = strings.TrimPrefix(path+"."+name, ".")
		fields = append(fields, name)
		fields = append(fields, fieldsOf(name, field.Type)...)
	}
	return fields
}

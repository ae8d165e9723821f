package toolcall_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/toolcall"
)

func TestMeaning(t *testing.T) {
	t.Parallel()
	tools := []toolcall.Tool{
		{Name: "book_trip", Type: "airline.book_reservation"},
		{Name: "shop_find", Type: "shop.find"},
		{Name: "transfer_v1"},
		{Name: "files_read_file", Server: "files", ReadOnly: true},
		{Name: "files_list_users", Server: "files", ReadOnly: true},
		{Name: "files_write_file", Server: "files"},
		{Name: "files_turn_on", Server: "files"},
		{Name: "files_turn_off", Server: "files"},
		{Name: "files_eu_read_file", Server: "files_eu", ReadOnly: true},
		{Name: "disk_wipe", Server: "disk"},
		{Name: "mail_send", Server: "mail"},
		{Name: "chat_send", Server: "chat"},
		{Name: "go", ReadOnly: true},
	}
	aliases := map[string]string{"rename": "files_write_file", "gone": "no_such_tool", "wipe": "book_trip"}
	type meaning = toolcall.Meaning
	for _, c := range []struct {
		name string
		want meaning
	}{
		// Aliases come first, and mean nothing where their tool is not there.
		{"rename", meaning{Tool: "files_write_file", How: toolcall.ByAlias}},
		{"wipe", meaning{Tool: "book_trip", How: toolcall.ByAlias}},
		{"gone", meaning{Closest: []string{"go"}}},
		// Names without their server, or their contract's namespace.
		{"write_file", meaning{Tool: "files_write_file", How: toolcall.Unprefixed}},
		{"find", meaning{Tool: "shop_find", How: toolcall.Unprefixed}},
		{"send", meaning{Closest: []string{"mail_send", "chat_send", "shop_find"}}},                            // two servers have it
		{"read_file", meaning{Closest: []string{"files_read_file", "files_eu_read_file", "files_write_file"}}}, // likewise
		// Other spellings, the type of the contract among them.
		{"airline.book_reservation", meaning{Tool: "book_trip", How: toolcall.Spelled}},
		{"bookTrip", meaning{Tool: "book_trip", How: toolcall.Spelled}},
		{"files/write-file", meaning{Tool: "files_write_file", How: toolcall.Spelled}},
		{"files_eu.read_file", meaning{Tool: "files_eu_read_file", How: toolcall.Spelled}},
		// Similar: 70 hundredths of a tool that reads, one slip of a tool that acts.
		{"files_list_user", meaning{Tool: "files_list_users", How: toolcall.Similar}},
		{"files_lits_usrs", meaning{Tool: "files_list_users", How: toolcall.Similar}},
		{"files_wirte_file", meaning{Tool: "files_write_file", How: toolcall.Similar}},
		{"files_wrte_fil", meaning{Closest: []string{"files_write_file", "files_read_file", "files_turn_off"}}},
		{"bookk_trip", meaning{Tool: "book_trip", How: toolcall.Similar}},
		{"mail_sendd", meaning{Tool: "mail_send", How: toolcall.Similar}},
		{"files_turn_of", meaning{Closest: []string{"files_turn_off", "files_turn_on", "files_list_users"}}},
		{"transfer_v2", meaning{Closest: []string{"transfer_v1"}}}, // another number is not a slip of the pen
		{"gp", meaning{Closest: []string{"go"}}},
		// A server that is named is never left for another.
		{"disk_read_file", meaning{Closest: []string{"disk_wipe"}}},
		{"mail_write_file", meaning{Closest: []string{"mail_send"}}},
		{"", meaning{}},
		{"🤷", meaning{}},
		{strings.Repeat("files_read_file", 1<<16), meaning{}},
	} {
		got := toolcall.NewNames(tools, aliases, true).Meaning(c.name)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%.40q (-want +got):\n%s", c.name, diff)
		}
		if got := toolcall.NewNames(tools, aliases, false).Meaning(c.name); c.want.How == toolcall.Similar && (got.Tool != "" || len(got.Closest) == 0) {
			t.Errorf("%.40q is taken for %q without similar names, and suggested are %q", c.name, got.Tool, got.Closest)
		}
	}
}

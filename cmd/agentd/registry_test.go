package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
)

// exampleFromRegistry is the example's configuration without its contract files.
func exampleFromRegistry(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(example, "agentd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "agentd.yaml"), strings.Replace(string(text), "contracts: [contracts]", "", 1))
	if err := os.CopyFS(filepath.Join(dir, "prompts"), os.DirFS(filepath.Join(example, "prompts"))); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "agentd.yaml")
}

func TestDev_WaitsForTheContractsOfServicesThatStartLater(t *testing.T) {
	s := launchDev(t, exampleFromRegistry(t), filepath.Join(example, "script.yaml"))
	s.until(&s.errors, "the agents start when the registry has the contracts")
	contains(t, s.errors.String(), "the registry has no contract weather.forecast; it has none",
		"start the services that publish it, or run: "+s.line("contracts", "push", "FILE")+"\n")
	s.serve()
	s.until(&s.out, "\nready")
	out, _ := s.expect(cli.ExitOK, "run", "travel.desk", "--message", "Two nights in Lisbon", "--answer", "Yes, book both")
	contains(t, out, "TRIP-TP-533-casa-do-rio")
	out, _ = s.expect(cli.ExitOK, "contracts", "list")
	contains(t, out, "flights.search    1.0.0     local   #/travel/flights/search")
	out, _ = s.expect(cli.ExitOK, "check")
	contains(t, out, "registry: agent travel.desk: flights.search@latest is looked up in the registry when the agent is served; agentd check --server looks now")
	out, _ = s.expect(cli.ExitOK, "check", "--server")
	contains(t, out, "registry: agent travel.desk: flights.search@latest is version 1.0.0 of the registry")
	out, _ = s.expect(cli.ExitOK, "doctor")
	contains(t, out, "nothing found")
}

const (
	shop = `uri: "#/shop/buy"
type: shop.buy
versions:
  1.0.0:
    accepts: {type: object, properties: {item: {type: string}}, required: [item]}
    emits: {shop.bought: {type: object, properties: {price: {type: number}}}}
`
	// shopBreaking asks for more than callers of 1.0.0 send.
	shopBreaking = `  1.1.0:
    accepts: {type: object, properties: {item: {type: string}, size: {type: integer}}, required: [item, size]}
    emits: {shop.bought: {type: object, properties: {price: {type: number}}}}
`
)

func TestContracts_PushListShow(t *testing.T) {
	config, script := chatProject(t)
	s := startDev(t, config, script)
	file := filepath.Join(t.TempDir(), "shop.yaml")
	out, _ := s.expect(cli.ExitOK, "contracts", "list")
	contains(t, out, "the registry has no contracts; publish one with: "+s.line("contracts", "push", "FILE")+"\n")
	write(t, file, shop)
	for _, outcome := range []string{"published", "unchanged"} {
		out, _ = s.expect(cli.ExitOK, "contracts", "push", file)
		if want := outcome + " shop.buy@1.0.0\n"; out != want {
			t.Errorf("push prints %q, want %q", out, want)
		}
	}

	write(t, file, strings.Replace(shop, "required: [item]", "required: []", 1))
	_, problem := s.expect(cli.ExitFailure, "contracts", "push", "--allow-breaking", file)
	contains(t, problem, "contract shop.buy has other content for versions that are published, and a version never changes",
		"1.0.0 accepts $.item", "make it 1.1.0")
	write(t, file, shop+shopBreaking)
	_, problem = s.expect(cli.ExitFailure, "contracts", "push", file)
	contains(t, problem, "breaks those who rely on what is published", "1.1.0 accepts $.size: expected no change that breaks callers")
	out, _ = s.expect(cli.ExitOK, "contracts", "list", "-o", "json")
	if strings.Contains(out, "1.1.0") {
		t.Errorf("what was refused is published:\n%s", out)
	}
	s.expect(cli.ExitOK, "contracts", "push", "--allow-breaking", file)

	out, _ = s.expect(cli.ExitOK, "contracts", "show", "shop.buy@^1")
	contains(t, out, "type: shop.buy\n", "1.1.0:")
	write(t, file, out)
	out, _ = s.expect(cli.ExitOK, "contracts", "push", file)
	contains(t, out, "unchanged shop.buy@1.1.0")
	out, _ = s.expect(cli.ExitOK, "contracts", "show", "#/shop/buy", "-o", "json")
	var shown struct{ Versions map[string]any }
	if err := json.Unmarshal([]byte(out), &shown); err != nil || len(shown.Versions) != 2 {
		t.Errorf("show prints %s, %v", out, err)
	}

	write(t, file, strings.Replace(shop, "#/shop/buy", "#/shop/sell", 1))
	_, problem = s.expect(cli.ExitFailure, "contracts", "push", file)
	contains(t, problem, "$.uri: expected #/shop/buy, which is that of shop.buy, got #/shop/sell")
	write(t, file, "uri: x\ntype: y\n")
	_, problem = s.expect(cli.ExitUsage, "contracts", "push", file)
	contains(t, problem, `shop.yaml:1:1: missing key "versions"`)
	write(t, file, shop+strings.Replace(shopBreaking, "1.1.0", "1.2.0", 1))
	out, _ = s.expect(cli.ExitFindings, "contracts", "diff", "shop.buy@1.0.0", file)
	contains(t, out, "breaking: 1.0.0 to 1.2.0, accepts $.size")
	_, problem = s.expect(cli.ExitFailure, "contracts", "diff", "shop.sell", file)
	contains(t, problem, "the registry has no contract shop.sell; it has shop.buy; nor is there a file shop.sell")
	_, problem = s.expect(cli.ExitFailure, "contracts", "show", "shop.buy@^2")
	contains(t, problem, `contract #/shop/buy has no version for "^2"; it has 1.0.0, 1.1.0`)
	_, problem = s.expect(cli.ExitFailure, "contracts", "show", "shop.sell")
	contains(t, problem, "the registry has no contract shop.sell; it has shop.buy")
}

func TestContracts_RemoveEndsOpenCalls(t *testing.T) {
	s := launchDev(t, exampleFromRegistry(t), filepath.Join(example, "script.yaml"))
	s.until(&s.errors, "the agents start when")
	s.expect(cli.ExitOK, "contracts", "push", filepath.Join(example, "contracts", "flights.yaml"),
		filepath.Join(example, "contracts", "hotels.yaml"), filepath.Join(example, "contracts", "weather.yaml"),
		filepath.Join(example, "contracts", "bookings.yaml"))
	s.until(&s.out, "\nready")
	s.expect(cli.ExitOK, "run", "travel.desk", "-m", "Lisbon", "--subject", "one", "--detach")
	s.until(&s.out, "waits     for 2 answers")

	_, problem := s.expect(cli.ExitUsage, "contracts", "remove", "flights.search")
	contains(t, problem, "want TYPE@VERSION, such as airline.book@1.2.0")
	_, problem = s.expect(cli.ExitUsage, "contracts", "remove", "flights.search@^1", "--yes")
	contains(t, problem, "^1 is a range; name the exact version to remove")
	_, problem = s.expect(cli.ExitFailure, "contracts", "remove", "flights.search@3.0.0", "--yes")
	contains(t, problem, `has no version for "3.0.0"; it has 1.0.0`)
	out, problem := s.expect(cli.ExitUsage, "contracts", "remove", "flights.search@1.0.0")
	contains(t, out, "agent travel.desk  run one  call c1-0-", "1 open call of 1 run of travel.desk")
	contains(t, problem, "nothing was done; repeat the command with --yes to do it")

	out, _ = s.expect(cli.ExitOK, "contracts", "remove", "flights.search@1.0.0", "--yes")
	contains(t, out, "ended with contract_missing", "flights.search@1.0.0 is removed")
	out, _ = s.expect(cli.ExitOK, "contracts", "remove", "#/travel/flights/search@1.0.0", "--yes")
	contains(t, out, "no open call with flights.search@1.0.0 was found", "flights.search@1.0.0 is removed")
	s.expect(cli.ExitOK, "contracts", "remove", "hotels.search@1.0.0", "--yes")
	s.until(&s.out, "error     search_flights")
	out, _ = s.expect(cli.ExitOK, "runs", "show", "one", "--verbose")
	contains(t, out, `"code":"contract_missing"`, "was removed from the registry of contracts while the call was open")
	out, _ = s.expect(cli.ExitOK, "contracts", "list")
	contains(t, out, "1.0.0 (removed)")
	_, problem = s.expect(cli.ExitFailure, "contracts", "show", "flights.search@1.0.0")
	contains(t, problem, "every version of contract flights.search was removed from the registry: 1.0.0")
	out, _ = s.expect(cli.ExitFindings, "check", "--server")
	contains(t, out, "agentd.yaml:27:22: every version of contract hotels.search was removed from the registry: 1.0.0")
	out, _ = s.expect(cli.ExitOK, "contracts", "push", filepath.Join(example, "contracts", "flights.yaml"))
	contains(t, out, "published flights.search@1.0.0")
}

// A contract that was changed in place under its version means another thing to the service that registered it.
func TestContracts_AChangeInPlaceIsRefused(t *testing.T) {
	config, script := clerkProject(t, "")
	s := startDev(t, config, script, "--server-only")
	pay := filepath.Join(filepath.Dir(config), "pay.yaml")
	s.expect(cli.ExitOK, "provision")
	s.expect(cli.ExitOK, "contracts", "push", pay)
	out, _ := s.expect(cli.ExitOK, "check", "--server")
	contains(t, out, "nothing wrong")

	const accepts, changed = "to: {type: string}", "to: {type: number}"
	text, err := os.ReadFile(pay)
	if err != nil || !strings.Contains(string(text), accepts) {
		t.Fatal(err, string(text))
	}
	write(t, pay, strings.Replace(string(text), accepts, changed, 1))
	const said = "version 1.0.0 of contract bank.pay is published with other content, and a version never changes"
	out, _ = s.expect(cli.ExitFindings, "check", "--server")
	contains(t, out, "pay.yaml:4:3: ", said)
	out, _ = s.expect(cli.ExitFindings, "doctor")
	contains(t, out, said, "→ give what was changed a version of its own")
	_, problem := s.expect(cli.ExitFailure, "serve")
	contains(t, problem, "agent clerk", said)
}

// agentd dev goes on with the worker that it has, whatever the next configuration's worker ends with.
func TestDev_OutlivesAContractThatWasChangedInPlace(t *testing.T) {
	config, script := clerkProject(t, "")
	s := startDev(t, config, script)
	pay := filepath.Join(filepath.Dir(config), "pay.yaml")
	s.expect(cli.ExitOK, "contracts", "push", pay)
	text, err := os.ReadFile(pay)
	if err != nil {
		t.Fatal(err)
	}
	write(t, pay, strings.Replace(string(text), "to: {type: string}", "to: {type: number}", 1))
	s.until(&s.errors, "the configuration before stays in use")
	contains(t, s.errors.String(), "version 1.0.0 of contract bank.pay is published with other content")
	write(t, pay, string(text))
	s.until(&s.errors, "configuration reloaded")
	s.expect(cli.ExitOK, "run", "clerk", "--message", "Pay", "--subject", "one", "--detach")
}

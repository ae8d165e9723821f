package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/requests"
	"agentd/internal/state/redistest"
	"agentd/sdk/service"
	"agentd/sdk/wire"
)

const composeFile = "../../deploy/compose/nats.conf"

// The server of docker-compose.yml runs what the command of docs/operations.md writes, byte for byte.
func TestNATSConfig_IsThatOfCompose(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	typed := regexp.MustCompile(`(?m)^agentd (nats-config [^>]*) > deploy/compose/nats\.conf$`).FindStringSubmatch(string(page))
	if typed == nil {
		t.Fatal("docs/operations.md does not make deploy/compose/nats.conf")
	}
	var args []string
	for _, word := range strings.Fields(strings.ReplaceAll(typed[1], "\\\n", " ")) {
		args = append(args, strings.Trim(word, "'"))
	}
	i := slices.Index(args, "--config")
	s := &system{t: t, config: filepath.Join("../..", args[i+1]), data: t.TempDir()}
	made, _ := s.expect(cli.ExitOK, slices.Delete(args, i, i+2)...)
	have, err := os.ReadFile(composeFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made, string(have)); diff != "" {
		t.Errorf("deploy/compose/nats.conf is not what its users need; type the command of docs/operations.md (-made +have):\n%s", diff)
	}
}

// composed is the system of docker-compose.yml: a server with the very file, a worker, and the services. What differs is where
// the server listens and stores.
func composed(t *testing.T) *guarded {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	file, err := os.ReadFile(composeFile)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../examples/traveldesk")); err != nil {
		t.Fatal(err)
	}
	g := guard(t, filepath.Join(dir, "agentd.yaml"), filepath.Join(dir, "script.yaml"), "worker", "operator", "travel", "client")
	text := string(file)
	for _, c := range [][2]string{
		{`listen: "0.0.0.0:4222"`, `listen: "127.0.0.1:-1"`}, {"http: \"0.0.0.0:8222\"\n", ""}, {`store_dir: "/data"`, `store_dir: "` + t.TempDir() + `"`},
	} {
		if strings.Count(text, c[0]) != 1 {
			t.Fatalf("%s does not have %s once", composeFile, c[0])
		}
		text = strings.Replace(text, c[0], c[1], 1)
	}
	redis := redistest.Start(t)
	g.start(text, 1)
	g.as("operator", "provision", "--redis", redis)
	g.background(&g.out, &g.errors, "serve", "--nats", g.url("worker"), "--redis", redis)
	g.until(&g.errors, "serving")
	var services []*service.Service
	for name, answer := range map[string]string{
		"weather":  `{}`,
		"flights":  `{"flights":[{"id":"TP-533","airline":"TAP","departs":"09:40","price_eur":189}]}`,
		"hotels":   `{"hotels":[{"id":"casa-do-rio","name":"Casa do Rio","total_eur":210}]}`,
		"bookings": `{"reference":"TRIP-TP-533-casa-do-rio","total_eur":399}`,
	} {
		s, err := service.FromFile(filepath.Join(dir, "contracts", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		service.Handle(s, func(context.Context, service.Call, map[string]any) (json.RawMessage, error) {
			return json.RawMessage(answer), nil
		})
		services = append(services, s)
	}
	g.offer("travel", services...)
	return g
}

// A run goes from its client to the services and back with the users of docker-compose.yml, none of whom is refused anything.
func TestNATSConfig_OfComposeSuffices(t *testing.T) {
	g := composed(t)
	g.as("client", "run", "travel.desk", "--message", "Two nights in Lisbon, please.", "--subject", "trip", "-d")
	contains(t, g.as("operator", "runs", "follow", "trip", "--answer", "Yes, book both"), "TRIP-TP-533-casa-do-rio")
	contains(t, g.as("client", "runs", "follow", "trip"), "TRIP-TP-533-casa-do-rio")
	g.eventually("the contracts are registered", func() bool {
		list := g.as("operator", "contracts", "list")
		return strings.Contains(list, "flights.search") && strings.Contains(list, "bookings.book")
	})
	if said := g.violations.said(); len(said) > 0 {
		t.Errorf("the server refused what a program needs:\n%s", strings.Join(said, "\n"))
	}
}

// The users of docker-compose.yml who are not trusted can neither make consumers nor touch streams, and what the server answers
// them goes to nobody else, while a run waits for an answer.
func TestNATSConfig_OfComposeWithstands(t *testing.T) {
	g := composed(t)
	g.as("operator", "run", "travel.desk", "--message", "Two nights in Lisbon, please.", "--subject", "one", "-d")
	var asked []requests.Item
	g.eventually("the question", func() bool {
		if err := json.Unmarshal([]byte(g.as("operator", "approvals", "list", "-o", "json")), &asked); err != nil {
			t.Fatal(err)
		}
		return len(asked) == 1
	})
	strangers := []string{"travel", "client"}
	key := wire.NewRunKey("one").String()
	for _, user := range strangers {
		refused := []string{"$JS.API.STREAM.CREATE.MINE", "agentd.run." + key}
		for _, stream := range []string{"AGENTD_RUN", "AGENTD_START", "AGENTD_OUT", "AGENTD_IN", "AGENTD_DONE", "AGENTD_DLQ"} {
			for _, request := range []string{
				"CONSUMER.CREATE." + stream, "CONSUMER.CREATE." + stream + ".mine", "CONSUMER.DURABLE.CREATE." + stream + ".mine",
				"CONSUMER.DELETE." + stream + ".mine", "STREAM.DELETE." + stream, "STREAM.PURGE." + stream, "STREAM.UPDATE." + stream,
			} {
				refused = append(refused, "$JS.API."+request)
			}
		}
		g.refused(user, refused, []string{"agentd.>", "_INBOX_agentd_worker.>"})
	}
	v := victim{"travel_desk", "bookings_book", key, asked[0].ID, asked[0].ID, 1}
	g.endures(v, []string{"operator"}, strangers, func() {
		for _, user := range strangers {
			g.strike(v, user)
		}
	})
}

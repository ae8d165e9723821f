package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
)

// attack is a request that a role may make, or may try to make, and on whose answer the server or a worker puts something.
type attack struct{ subject, body string }

// victim is what no attack may change: a run that waits for a decision, and names on the server.
type victim struct {
	// agent is the run's, and service the type of a service that it calls, as they are in subjects.
	agent, service, key string
	// asked is the id of what the run waits for, call that of a call to the service.
	asked, call string
	// partitions is how many there are.
	partitions int
}

// inPartition is a subject with the names of the streams that have what is the run's.
func (v victim) inPartition(subject string) string {
	if v.partitions == 1 {
		return subject
	}
	p, err := strconv.Atoi(v.key[:3])
	if err != nil {
		panic(err) // wire.RunKey has it as digits
	}
	part := fmt.Sprintf("_%d", p*v.partitions/256)
	var names []string
	for _, name := range []string{"AGENTD_RUN", "AGENTD_TMR", "AGENTD_IN", "AGENTD_OUT", "agentd_in.", "agentd_out."} {
		stream, dot := strings.CutSuffix(name, ".")
		divided := stream + part
		if dot {
			divided += "."
		}
		names = append(names, name, divided)
	}
	return strings.NewReplacer(names...).Replace(subject)
}

// targets are the reply and delivery subjects that do harm where the server publishes on them.
func (v victim) targets() []string {
	tail := v.agent + "." + v.key + "."
	return []string{
		"$JS.API.STREAM.DELETE.CANARY", "$JS.API.STREAM.PURGE.CANARY", "$JS.API.STREAM.DELETE.AGENTD_RUN", "$JS.API.STREAM.PURGE.AGENTD_RUN",
		"$JS.API.CONSUMER.DELETE.AGENTD_OUT.svc_local_" + v.service, "$JS.API.CONSUMER.DELETE.AGENTD_START.agent_" + v.agent,
		"agentd.run." + v.key, "agentd.done." + tail + "aaaaaaaaaaaaaaaaaaaaaaaaaa", "agentd.start." + v.agent + ".bob", "agentd.tmr." + strings.TrimSuffix(tail, "."),
		"agentd.fire." + strings.TrimSuffix(tail, "."), "agentd.ctl.cancel." + strings.TrimSuffix(tail, "."), "agentd.out.local." + v.service + "." + tail + v.call,
		"agentd.in.human_interaction.agentd_permission_request." + tail + v.asked + ".bob", "agentd.in.local." + v.service + "." + tail + v.call,
		"agentd.in.human_interaction.agentd_question_ask." + tail + v.asked + ".bob", "agentd.dlq.conflict.agentd_in.9",
		"$KV.AGENTD_GRANTS.bob." + v.agent + ".pay", "$KV.AGENTD_CONTRACTS." + v.service + ".9_0_0",
	}
}

// inboxes are those of others, which must hear nothing.
var inboxes = []string{"_INBOX_agentd_bob.heard", "_INBOX_agentd_operator.heard", "_INBOX_agentd_worker.heard"}

// pull asks a consumer that has nothing: the server answers on the reply subject at once.
func pull(consumer string) attack {
	return attack{"$JS.API.CONSUMER.MSG.NEXT." + consumer, `{"batch":1,"no_wait":true}`}
}

// attacks are those of a role: all that it may ask, and what it could once.
func (v victim) attacks(user string) []attack {
	run := v.agent + "." + v.key
	decided := "agentd.in.human_interaction.agentd_permission_request." + run + "." + v.asked + "." + user
	pause := attack{"$JS.API.CONSUMER.PAUSE.AGENTD_START.agent_" + v.agent, `{"pause_until":"9999-12-31T23:59:59Z"}`}
	front := []attack{
		{"agentd.get." + v.agent, `{"run":"one"}`},
		{"agentd.get." + v.agent + "." + user, `{"run":"one"}`},
		{"agentd.get." + v.agent + "." + user, `{"list":{}}`},
		{"agentd.start." + v.agent + "." + user, "no event"},
		{"agentd.ctl.message." + run + "." + user, "no event"},
		{"agentd.ctl.cancel." + run + "." + user, "no event"},
		{"$JS.API.DIRECT.GET.AGENTD_DONE.agentd.done." + v.agent + ".>", ""},
		pull("AGENTD_DONE.none"),
		{"$JS.API.INFO", ""},
		pause,
		{"agentd.ctl.pause." + run, "no event"},
		{"$JS.API.STREAM.NAMES", ""},
		{"$SYS.REQ.USER.INFO", ""},
	}
	people := append(front, pull("AGENTD_OUT.none"), pull("AGENTD_OUT.svc_local_"+v.service),
		attack{"agentd.in.human_interaction.agentd_question_ask." + run + ".c1-1-none." + user, "no event"})
	service := func(name string) []attack {
		return []attack{
			pull("AGENTD_OUT." + name),
			pause,
			{"$JS.API.CONSUMER.INFO.AGENTD_OUT." + name, ""},
			{"$JS.API.STREAM.MSG.GET.AGENTD_IN", `{"seq":1}`},
			{"$JS.API.STREAM.MSG.GET.AGENTD_DLQ", `{"seq":1}`},
			{"$JS.API.STREAM.MSG.GET.KV_AGENTD_CONTRACTS", `{"seq":1}`},
			{"agentd.in.local.weather_forecast." + run + ".c1-0-none", "no event"},
			{"agentd.dlq.invalid_event.agentd_out.77.local.weather_forecast", "no event"},
			{"$KV.AGENTD_CONTRACTS.weather_forecast.9_0_0", "none"},
			{"$JS.ACK.AGENTD_OUT." + name + ".1.1.1.1.0", "+NXT"},
		}
	}
	switch user {
	case "shop", "client":
		return front
	case "ann":
		return people
	case "jane", "joe":
		return append(people, attack{decided, "no event"}, pull("AGENTD_IN.none"), pull("AGENTD_DLQ.none"),
			attack{"agentd.read.AGENTD_OUT.agentd.*.human_interaction.>", `{"seq":1}`},
			attack{"agentd.read.AGENTD_IN.agentd.in.human_interaction.>", `{"seq":1}`})
	}
	return service("svc_local_weather_forecast")
}

// pushes are requests for a consumer whose messages and heartbeats the server would publish on a subject, in the forms that
// the filters of each role once allowed.
func (v victim) pushes(name, target string) []attack {
	var list []attack
	for stream, filters := range map[string][]string{
		"AGENTD_DONE": {"agentd.done." + v.agent + ".>"}, "AGENTD_IN": {"agentd.in.human_interaction.>"}, "AGENTD_DLQ": {"agentd.dlq.*.agentd_in.>"},
		"AGENTD_OUT": {"agentd.*.human_interaction.>", "agentd.out.human_interaction.>", "agentd.out.*.agentd_question_ask.>", "agentd.out.local.weather_forecast.>"},
	} {
		for i, filter := range filters {
			n := fmt.Sprintf("%s%d", name, i)
			stream, filter := v.inPartition(stream), v.inPartition(filter)
			list = append(list, attack{
				"$JS.API.CONSUMER.CREATE." + stream + "." + n + "." + filter,
				fmt.Sprintf(`{"stream_name":%q,"config":{"name":%q,"ack_policy":"none","deliver_policy":"all","filter_subject":%q,`+
					`"inactive_threshold":600000000000,"deliver_subject":%q,"idle_heartbeat":100000000}}`, stream, n, filter, target),
			})
		}
	}
	return list
}

// survey is what is on the server, as far as an attack must not change it.
type survey struct {
	Streams []string
	// Consumers are the durable ones, and all that push.
	Consumers []string
	// Subjects counts the messages on subjects that the roles under test may not publish on.
	Subjects map[string]uint64
}

func (g *guarded) survey(v victim, roles []string) survey {
	g.t.Helper()
	nc, _ := g.connect("operator")
	defer nc.Close()
	ask := func(subject, body string, into any) {
		g.t.Helper()
		g.eventually("the server answers "+subject, func() bool {
			m, err := nc.Request(subject, []byte(body), 2*time.Second) // a stream without a leader answers nobody
			return err == nil && !strings.Contains(string(m.Data), `"code":503`) && json.Unmarshal(m.Data, into) == nil
		})
	}
	s := survey{Subjects: map[string]uint64{}}
	var streams struct {
		Streams []string `json:"streams"`
	}
	ask("$JS.API.STREAM.NAMES", `{}`, &streams)
	s.Streams = streams.Streams
	for _, stream := range s.Streams {
		var list struct {
			Consumers []struct {
				Name   string `json:"name"`
				Paused bool   `json:"paused"`
				Config struct {
					Durable string `json:"durable_name"`
					Deliver string `json:"deliver_subject"`
				} `json:"config"`
			} `json:"consumers"`
		}
		ask("$JS.API.CONSUMER.LIST."+stream, `{}`, &list)
		for _, c := range list.Consumers {
			if c.Config.Durable != "" || c.Config.Deliver != "" {
				s.Consumers = append(s.Consumers, fmt.Sprintf("%s/%s %s paused: %t", stream, c.Name, c.Config.Deliver, c.Paused))
			}
		}
		var info struct {
			State struct {
				Subjects map[string]uint64 `json:"subjects"`
			} `json:"state"`
		}
		ask("$JS.API.STREAM.INFO."+stream, `{"subjects_filter":">"}`, &info)
		for subject, n := range info.State.Subjects {
			own := strings.HasPrefix(subject, "agentd.dlq.") || strings.HasPrefix(subject, "agentd.tmr.lease.") || // these end by themselves
				strings.HasPrefix(subject, "$KV.AGENTD_CONTRACTS.weather_forecast.") ||
				strings.HasPrefix(subject, "agentd.in.local.weather_forecast.") || strings.HasPrefix(subject, "agentd.done."+v.agent+".") && !strings.Contains(subject, v.key)
			for _, role := range roles {
				own = own || strings.HasSuffix(subject, "."+role)
			}
			if !own {
				s.Subjects[subject] = n
			}
		}
	}
	slices.Sort(s.Streams)
	slices.Sort(s.Consumers)
	return s
}

// canary makes a stream that nobody needs.
func (g *guarded) canary() {
	g.t.Helper()
	nc, _ := g.connect("operator")
	defer nc.Close()
	m, err := nc.Request("$JS.API.STREAM.CREATE.CANARY", []byte(`{"name":"CANARY","subjects":["agentd.canary"],"storage":"file","retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"discard":"old","num_replicas":1}`), wait)
	if err != nil || strings.Contains(string(m.Data), `"error"`) {
		g.t.Fatalf("%v %s", err, m.Data)
	}
	if _, err := nc.Request("agentd.canary", []byte("sings"), wait); err != nil {
		g.t.Fatal(err)
	}
}

// strike makes all attacks of a user, with every harmful subject as the reply, and every push.
func (g *guarded) strike(v victim, user string) {
	g.t.Helper()
	nc, _ := g.connect(user)
	defer nc.Close()
	publish := func(a attack, reply string) {
		g.t.Helper()
		if err := nc.PublishMsg(&nats.Msg{Subject: a.subject, Reply: reply, Data: []byte(a.body)}); err != nil {
			g.t.Fatal(err)
		}
	}
	for _, reply := range append(v.targets(), inboxes...) {
		reply = v.inPartition(reply)
		for _, a := range v.attacks(user) {
			publish(attack{v.inPartition(a.subject), a.body}, reply)
		}
	}
	for i, target := range append(v.targets(), inboxes...) {
		for _, a := range v.pushes(fmt.Sprintf("%s%d_", user, i), v.inPartition(target)) {
			publish(a, nc.NewInbox())
		}
	}
	if err := nc.FlushTimeout(wait); err != nil {
		g.t.Fatal(err)
	}
}

func unchanged(agents string) string { return agents }

// endures fails when what users do changes what is not theirs, or when others hear what they ask for.
func (g *guarded) endures(v victim, others, users []string, strike func()) {
	g.t.Helper()
	g.canary()
	g.rested(v.agent)
	before := g.survey(v, users)
	if len(before.Streams) != 6+4*v.partitions || len(before.Consumers) < 8 || len(before.Subjects) < 5 {
		g.t.Fatalf("the survey misses something: %+v", before)
	}
	heard := make(chan string, 64)
	for _, name := range others {
		nc, _ := g.connect(name)
		defer nc.Close()
		if _, err := nc.Subscribe("_INBOX_agentd_"+name+".heard", func(m *nats.Msg) {
			select {
			case heard <- fmt.Sprintf("%s: %v %s", m.Subject, m.Header, m.Data):
			default:
			}
		}); err != nil || nc.FlushTimeout(wait) != nil {
			g.t.Fatal(err)
		}
	}
	strike()
	if diff := cmp.Diff(before, g.survey(v, users)); diff != "" {
		g.t.Errorf("%v, at once (-before +after):\n%s", users, diff)
	}
	g.restart()
	select { // a consumer that pushes sends its heartbeats by then
	case text := <-heard:
		g.t.Errorf("%v: somebody else hears %s", users, text)
	case <-time.After(500 * time.Millisecond):
	}
	after := g.survey(v, users)
	if diff := cmp.Diff(before, after); diff != "" {
		g.t.Errorf("%v, after a restart (-before +after):\n%s", users, diff)
	}
	var messages uint64
	for _, n := range after.Subjects {
		messages += n
	}
	g.t.Logf("%v, after a restart: %d streams, %d consumers, %d messages that are not theirs", users, len(after.Streams), len(after.Consumers), messages)
}

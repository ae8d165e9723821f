package bench

import (
	"strings"
	"testing"
)

// What limits is what is used up, the most used first; where nothing is, it is the waiting, and more at a time helps or does not.
func TestReport_SaysWhatLimits(t *testing.T) {
	t.Parallel()
	usual := Report{
		Setting: Setting{Turns: 3, Clients: 8, Workers: 1, Slots: 32, Processors: 4}, RunsPerSecond: 100, Stored: 9, Awaited: 9,
		Run: Spread{P50: 80}, Alone: Spread{P50: 20}, Probe: Probe{WriteMS: 1, WritesPerSecond: 6500},
	}
	for name, of := range map[string]struct {
		change func(*Report)
		// want are texts of what limits, in order, and of the advice.
		want []string
	}{
		"this process":      {func(r *Report) { r.Busy, r.MachineBusy = 0.9, 0.95 }, []string{"workers, service and clients", "further machines"}},
		"with the server":   {func(r *Report) { r.Busy, r.Setting.Embedded = 0.9, "/tmp/x" }, []string{"the NATS server share", "--nats"}},
		"other programs":    {func(r *Report) { r.Busy, r.MachineBusy = 0.3, 0.95 }, []string{"only 30 %", "another machine"}},
		"the server":        {func(r *Report) { r.Setting.NATSCores, r.Setting.NATSProcessors = 2, 1.9 }, []string{"1.9 of 2", "larger machine"}},
		"the disk":          {func(r *Report) { r.RunsPerSecond = 500 }, []string{"4500 stored messages a second", "syncs faster"}},
		"written later":     {func(r *Report) { r.RunsPerSecond, r.Awaited = 500, 4 }, []string{"waiting: a run alone takes 20.0 ms, in which it waits for about 8 writes", "more at a time"}},
		"slots":             {func(r *Report) { r.Setting.Clients, r.Setting.ModelLatencyMS = 64, 1 }, []string{"32 for 64 runs", "more slots"}},
		"the model":         {func(r *Report) { r.Setting.ModelLatencyMS = 15 }, []string{"the model: 60 of 80 ms", "more clients"}},
		"few at a time":     {func(r *Report) { r.RunsPerSecond = 390 }, []string{"waiting: a run alone takes 20.0 ms", "--clients 16"}},
		"unseen servers":    {func(*Report) {}, []string{"waiting", "--monitor"}},
		"the most used one": {func(r *Report) { r.RunsPerSecond, r.Busy = 500, 0.95 }, []string{"processors of this machine", "machines", "the disk", "syncs"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := usual
			of.change(&r)
			r.judge()
			said := ""
			for _, l := range r.Limits {
				said += l.What + "\n" + l.Advice + "\n"
				if l.Used < 0 || l.Used > 1 {
					t.Errorf("%s is used to %g", l.What, l.Used)
				}
			}
			rest := said
			for _, want := range of.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("it does not say %q after what comes before:\n%s", want, said)
				}
				rest = after
			}
			if got := 2 * len(r.Limits); got != len(of.want) {
				t.Errorf("it says %d things, want %d:\n%s", got, len(of.want), said)
			}
		})
	}
}

func TestMachine_IsBusyByItsTicks(t *testing.T) {
	t.Parallel()
	before, after := machine{busy: 100, all: 1000}, machine{busy: 190, all: 1100}
	if got := after.busySince(before); got != 0.9 {
		t.Errorf("got %g, want 0.9", got)
	}
	if got := (machine{}).busySince(machine{}); got != 0 {
		t.Errorf("nothing known is %g", got)
	}
}

package streams

import (
	"errors"
	"slices"
	"testing"

	"agentd/sdk"
	"agentd/sdk/wire"
)

func TestLayout_SaysWhatAFilterCanBeOn(t *testing.T) {
	t.Parallel()
	l := Layout{4}
	for filter, want := range map[string][]Zone{
		"agentd.tmr.*.255." + wire.NewRunKey("trip-7").Token: {"TMR_3"},
		"agentd.fire.desk.064.x":                             {"TMR_1"},
		"agentd.fire.desk.063.x":                             {"TMR_0"},
		"agentd.tmr.*.128.>":                                 {"TMR_2"},
		"agentd.fire.desk.>":                                 {"TMR_0", "TMR_1", "TMR_2", "TMR_3"},
		"agentd.tmr.*.*.x":                                   {"TMR_0", "TMR_1", "TMR_2", "TMR_3"},
		"agentd.tmr.>":                                       {"TMR_0", "TMR_1", "TMR_2", "TMR_3"},
		">":                                                  {"TMR_0", "TMR_1", "TMR_2", "TMR_3"},
		"agentd.tmr.parked.key.desk.>":                       {"TMR_0"},
		"agentd.tmr.lease.reconcile":                         {"TMR_0"},
	} {
		if got := l.Holding(Timer, filter); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", filter, got, want)
		}
	}
	if got := l.Holding(Start, "agentd.start.>"); !slices.Equal(got, []Zone{Start}) {
		t.Errorf("init events are in %v", got)
	}
}

func TestNewLayout_RefusesOtherNumbers(t *testing.T) {
	t.Parallel()
	for _, n := range []int{-1, 0, 3, 100, 255, 512} {
		if _, err := NewLayout(n); !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
			t.Errorf("%d partitions: %v", n, err)
		}
	}
}

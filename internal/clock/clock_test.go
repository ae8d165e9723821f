package clock_test

import (
	"testing"

	"agentd/internal/clock"
)

const hour = 3_600_000

func TestClock(t *testing.T) {
	t.Parallel()
	// Each step tells the clock something; then the broker's time at 10 h of the process's own is as given.
	for _, test := range []struct {
		name  string
		steps []func(*clock.Clock)
		want  int64
	}{
		{"nothing known", nil, 10 * hour},
		{
			"two hours behind, the answer took 40 ms",
			[]func(*clock.Clock){func(c *clock.Clock) { c.Measured(hour, 3*hour+20, hour+40) }},
			12*hour - 20,
		},
		{
			"a later answer that agrees, however long it took, changes nothing",
			[]func(*clock.Clock){
				func(c *clock.Clock) { c.Measured(hour, 3*hour+20, hour+40) },
				func(c *clock.Clock) { c.Measured(2*hour, 4*hour+4000, 2*hour+5000) },
			},
			12*hour - 20,
		},
		{
			"the process's clock is slow: 10 ms of the answer are in doubt",
			[]func(*clock.Clock){
				func(c *clock.Clock) { c.Measured(hour, hour, hour) },
				func(c *clock.Clock) { c.Measured(5*hour, 5*hour+30, 5*hour+10) },
			},
			10*hour + 20,
		},
		{
			"the process's clock was set right: 10 ms of the answer are in doubt",
			[]func(*clock.Clock){
				func(c *clock.Clock) { c.Measured(hour, 3*hour+20, hour+40) },
				func(c *clock.Clock) { c.Measured(5*hour, 5*hour, 5*hour+10) },
			},
			10*hour - 10,
		},
		{
			"the process's clock is fast: the whole answer is in doubt",
			[]func(*clock.Clock){
				func(c *clock.Clock) { c.Measured(hour, hour, hour) },
				func(c *clock.Clock) { c.Measured(5*hour, 5*hour-30, 5*hour+10) },
			},
			10*hour - 40,
		},
		{
			"what is stored later than the clock says is believed",
			[]func(*clock.Clock){
				func(c *clock.Clock) { c.Measured(hour, hour, hour) },
				func(c *clock.Clock) { c.Stored(9*hour, 8*hour) },
			},
			11 * hour,
		},
		{
			"what was stored long ago tells nothing",
			[]func(*clock.Clock){
				func(c *clock.Clock) { c.Measured(hour, hour, hour) },
				func(c *clock.Clock) { c.Stored(2*hour, 8*hour) },
			},
			10 * hour,
		},
		{
			"a message alone does not say how late it was delivered",
			[]func(*clock.Clock){func(c *clock.Clock) { c.Stored(2*hour, 8*hour) }},
			10 * hour,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var c clock.Clock
			for _, step := range test.steps {
				step(&c)
			}
			if got := c.Broker(10 * hour); got != test.want {
				t.Errorf("the broker's time is %d, want %d", got, test.want)
			}
		})
	}
}

package days

import (
	"testing"
	"time"
)

func TestText(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		7 * Day: "7d", 2 * Day: "2d", Day: "24h", 36 * time.Hour: "36h", 60 * time.Hour: "2d12h", 90 * time.Second: "1m30s",
		90 * time.Minute: "1h30m", 10 * time.Minute: "10m", 0: "0s", 30 * Day: "30d", 2*Day + time.Second: "2d1s",
		100 * time.Millisecond: "100ms", 20 * time.Hour: "20h",
	} {
		if got := Text(d); got != want {
			t.Errorf("%d is %s, want %s", d, got, want)
		}
	}
}

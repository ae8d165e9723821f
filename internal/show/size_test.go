package show

import "testing"

func TestSize(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[float64]string{
		0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 200 << 10: "200 KiB", 3 << 20: "3.0 MiB", 5 << 30: "5.0 GiB", 2048 << 40: "2048 TiB",
	} {
		if got := Size(bytes); got != want {
			t.Errorf("%v bytes are %s, want %s", bytes, got, want)
		}
	}
}

package wire

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"agentd/sdk"
)

func TestParseUnits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in      string
		want    sdk.Units
		written string
	}{
		{"0", 0, "0"},
		{"-0", 0, "0"},
		{"7", 7_000_000, "7"},
		{"0.5", 500_000, "0.5"},
		{"-1.25", -1_250_000, "-1.25"},
		{"1e3", 1000_000_000, "1000"},
		{"12.5E-1", 1_250_000, "1.25"},
		{"0.000001", 1, "0.000001"},
		{"0.0000005", 1, "0.000001"},
		{"0.00000049999", 0, "0"},
		{"-0.0000005", -1, "-0.000001"},
		{"0.9999995", 1_000_000, "1"},
		{"1e-999999999999", 0, "0"},
		{"0e999999999999", 0, "0"},
		{"3000000000.3", 3_000_000_000_300_000, "3000000000.3"},
		{"9223372036854.775807", math.MaxInt64, "9223372036854.775807"},
		{"-9223372036854.775808", math.MinInt64, "-9223372036854.775808"},
	} {
		got, err := ParseUnits(c.in)
		if err != nil || got != c.want || got.String() != c.written {
			t.Errorf("ParseUnits(%s) = %d (%s), %v; want %d (%s)", c.in, got, got, err, c.want, c.written)
		}
	}
	for _, in := range []string{
		"", "-", "+1", "01", "1.", ".5", "1e", "1e+", "0x1", "1_000", " 1", "1 ", "NaN", "Infinity", "1e5x",
		"9223372036854.775808", "-9223372036854.775809", "9223372036854.7758075", "1e13", "1e999999999999",
	} {
		if got, err := ParseUnits(in); !errors.Is(err, &sdk.Error{Code: sdk.CodeInvalidEvent}) {
			t.Errorf("ParseUnits(%q) = %d, %v; want a refusal", in, got, err)
		}
	}
}

func TestUnits_TextIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := sdk.Units(rapid.Int64().Draw(t, "units"))
		if got, err := ParseUnits(want.String()); err != nil || got != want {
			t.Fatalf("ParseUnits(%s) = %d, %v; want %d", want, got, err, want)
		}
	})
}

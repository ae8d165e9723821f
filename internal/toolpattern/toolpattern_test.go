package toolpattern

import "testing"

func TestCheck(t *testing.T) {
	t.Parallel()
	for pattern, good := range map[string]bool{
		"pay": true, "book_*": true, "p?y": true, "[pq]ay": true, "*": true,
		"": false, "[pay": false, "pay[": false, "*[": false, `pay\`: false,
	} {
		if err := Check(pattern); (err == nil) != good {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}

func TestMatch_PassesOverWhatItCannotRead(t *testing.T) {
	t.Parallel()
	if !Match([]string{"[pay", "book_*"}, "book_hotel") || Match([]string{"[pay", "book_*"}, "pay") {
		t.Error("want book_hotel, and not pay")
	}
}

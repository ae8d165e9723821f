package cli

import (
	"time"

	"agentd/internal/strict"
)

// SinceTime is the beginning of the time that --since names; zero without one.
func SinceTime(since string) (time.Time, error) {
	if since == "" {
		return time.Time{}, nil
	}
	d, err := strict.ParseDuration(since)
	if err != nil {
		return time.Time{}, Usagef("--since: %w", err)
	}
	return time.Now().Add(-d), nil
}

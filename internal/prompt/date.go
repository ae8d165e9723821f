package prompt

import (
	"fmt"
	"time"
	_ "time/tzdata" // images may have no time zones

	"agentd/sdk"
)

// Zone is the time zone of that IANA name. The error is CodeConfig.
func Zone(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return nil, sdk.Errorf(sdk.CodeConfig, "%q is not a time zone; name one such as Europe/Berlin or UTC", name)
	}
	return zone, nil
}

// DateText tells a time with the days around it, so that a model has nothing to compute.
func DateText(now time.Time) string {
	day := func(days int) string { return now.AddDate(0, 0, days).Format("Monday, 2006-01-02") }
	_, week := now.ISOWeek()
	sinceMonday := (int(now.Weekday()) + 6) % 7
	return fmt.Sprintf("Today is %s, week %d of the year. It is %s in %s (UTC%s).\nYesterday was %s. Tomorrow is %s.\n"+
		"This week is from %s to %s. The next one is from %s to %s.",
		day(0), week, now.Format("15:04"), now.Location(), now.Format("-07:00"), day(-1), day(1),
		day(-sinceMonday), day(6-sinceMonday), day(7-sinceMonday), day(13-sinceMonday))
}

package show

import "fmt"

// Size is a number of bytes as people say it, in its largest unit.
func Size(bytes float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	unit := 0
	for ; bytes >= 1024 && unit < len(units)-1; unit++ {
		bytes /= 1024
	}
	if unit == 0 || bytes >= 100 {
		return fmt.Sprintf("%.0f %s", bytes, units[unit])
	}
	return fmt.Sprintf("%.1f %s", bytes, units[unit])
}

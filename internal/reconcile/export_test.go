package reconcile

// ByPartition has a pass do what it does when streams are too large to be listed at once.
func ByPartition(o *Options) { o.byPartition = true }

// Scheduled makes the passes that are due, as Periodic does.
var Scheduled = scheduled

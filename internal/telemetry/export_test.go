package telemetry

// Remote is remote, for tests.
var Remote = remote

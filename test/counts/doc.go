// Package counts guards what one run costs: how many messages agentd publishes to NATS, how many the streams keep, how many
// commands Redis gets, how many entries and bytes a journal has. Counts do not depend on the machine; times do, and none is
// measured here. The numbers stand in counts_test.go: who makes a run cheaper lowers them, and CI fails when one is exceeded.
package counts

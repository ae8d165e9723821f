// Package sim runs the real core, runner and handler in a simulated world: fake broker, store, model, services and
// clock, and workers that die between any two effects.
//
// A history is determined by its seed. Everything happens in one goroutine at a time: a worker's code runs in fibers,
// and each call that leaves the worker (store, broker, model, tool, sleep) is a point at which the scheduler may let
// another fiber go on, move the clock, or kill the worker with all its fibers and its memory. A history has two phases:
// first the faults of a random mix happen, then they stop, and the world must come to rest with every run done.
//
// What must hold is written in internal/audit; the simulator tells it everything that happens. A violation is reported
// with its seed and a trace; -sim.seed replays it.
package sim

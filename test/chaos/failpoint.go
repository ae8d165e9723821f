package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"
)

// action is what happens at a failpoint.
type action string

// The actions. A stopped process is a zombie: its driver lets it go on when its leases have lapsed.
const (
	actionKill action = "kill"
	actionStop action = "stop"
	// actionLose has the caller believe that the operation failed.
	actionLose action = "lose"
)

// failpoint is a place in the life of a delivery at which a worker can be struck.
type failpoint struct {
	name string
	// crash is the crash point of the protocol's specification that it stands for.
	crash   string
	actions []action
}

var (
	process = []action{actionKill, actionKill, actionKill, actionStop}
	killed  = []action{actionKill}
	lost    = []action{actionLose}
)

// The failpoints, in the order in which a delivery meets them.
const (
	atDelivered    = "delivered"
	atHeadRead     = "head read"
	atAbsorbSent   = "absorbing entry sent"
	atAbsorbLost   = "absorbing entry written, answer lost"
	atAbsorbed     = "absorbing entry written"
	atTaken        = "lease taken"
	atTakenOver    = "lease taken over"
	atInModel      = "in model"
	atModelDone    = "model done, before the entry"
	atStepSent     = "step's entry sent"
	atStepLost     = "step's entry written, answer lost"
	atStepRefused  = "step's entry not written, answer lost"
	atStepped      = "step's entry written"
	atBarrier      = "before barrier"
	atBarrierLost  = "barrier without answer"
	atPublish      = "before the first publish"
	atNextPublish  = "between two publishes"
	atPublishSent  = "publish sent"
	atPublishLost  = "published, confirmation lost"
	atAck          = "before ack"
	atAckLost      = "ack lost"
	atAcked        = "after ack"
	atBegan        = "at-most-once tool marked, before it runs"
	atInTool       = "in tool"
	atInToolOnce   = "in at-most-once tool"
	atToolDone     = "tool done, before the entry"
	atToolOnceDone = "at-most-once tool done, before the entry"
	atDeadLettered = "dead letter written, before ack"
	atArm          = "before arming a timer"
	atArmed        = "timer armed"
	atBlob         = "blob written, before the entry"
)

var failpoints = []failpoint{
	{atDelivered, "C0", process},
	{atHeadRead, "C1", process},
	{atAbsorbSent, "C2", killed},
	{atAbsorbLost, "C2", lost},
	{atAbsorbed, "C3", process},
	{atTaken, "C4", process},
	{atTakenOver, "C4", process},
	{atInModel, "C5", process},
	{atModelDone, "C6", process},
	{atStepSent, "C7", killed},
	{atStepLost, "C7", lost},
	{atStepRefused, "C7", lost},
	{atStepped, "C8", process},
	{atBarrier, "C9", process},
	{atBarrierLost, "C9", lost},
	{atPublish, "C10", process},
	{atNextPublish, "C11", process},
	{atPublishSent, "C12", killed},
	{atPublishLost, "C12", lost},
	{atAck, "C16", process},
	{atAckLost, "C16", lost},
	{atAcked, "C16", process},
	{atBegan, "C17", process},
	{atInTool, "C18", process},
	{atInToolOnce, "C18", process},
	{atToolDone, "C19", process},
	{atToolOnceDone, "C19", process},
	{atDeadLettered, "C21", process},
	{atArm, "C22", process},
	{atArmed, "C22", process},
	{atBlob, "C28", process},
}

// crashPoints are all of the specification, with what each means here. C13, C14, C15 and C20 belong to an outbox, which
// this protocol does not have.
var crashPoints = []struct{ name, meaning string }{
	{"C0", "after delivery"},
	{"C1", "after the head is read"},
	{"C2", "absorbing entry without an answer"},
	{"C3", "after an absorbing entry"},
	{"C4", "after the lease is taken"},
	{"C5", "in the model call"},
	{"C6", "model done, nothing written"},
	{"C7", "step's entry without an answer"},
	{"C8", "after a step's entry"},
	{"C9", "barrier not passed"},
	{"C10", "durable, before the first publish"},
	{"C11", "between two publishes"},
	{"C12", "publish without an answer"},
	{"C16", "around the ack"},
	{"C17", "at-most-once tool marked, not run"},
	{"C18", "in a tool"},
	{"C19", "tool done, nothing written"},
	{"C21", "dead letter written, not acked"},
	{"C22", "timer armed, twice, early, after the end"},
	{"C23", "zombie: goes on after its lease"},
	{"C24", "stopping worker runs out of patience"},
	{"C25", "store killed or stopped"},
	{"C26", "broker killed or stopped"},
	{"C27", "journal of a run lost"},
	{"C28", "blob written, entry not"},
}

// armed is a worker's one failpoint: it strikes at its n-th pass. A loss is repeated every n passes.
type armed struct {
	Point  string
	Action action
	Nth    int

	mu     sync.Mutex
	passes int
	notes  *notebook
}

// pass passes a failpoint. It returns true when the operation's outcome is to be lost, and may not return at all.
func (a *armed) pass(ctx context.Context, point string) (lose bool) {
	if !a.due(ctx, point) {
		return false
	}
	a.notes.write(note{Kind: noteStruck, Point: point, Action: a.Action})
	switch a.Action {
	case actionKill:
		die()
	case actionStop:
		// Returns when the process is continued.
		if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
			panic(fmt.Sprintf("stop myself: %v", err))
		}
	case actionLose:
		return true
	}
	return false
}

// mostTakeovers is how many drivers of a run in a row may be struck at a failpoint. A run that met one with every driver
// would be a run that kills its workers, and be ended for that.
const mostTakeovers = 3

func (a *armed) due(ctx context.Context, point string) bool {
	if point == "" || a.Point != point || activityOf(ctx).takeovers.Load() >= mostTakeovers {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.passes++
	if a.Action == actionLose {
		return a.passes%a.Nth == 0
	}
	return a.passes == a.Nth
}

// meanwhile passes a failpoint while do is on its way: the process ends before it can learn the outcome.
func (a *armed) meanwhile(ctx context.Context, point string, do func()) {
	if !a.due(ctx, point) {
		return
	}
	a.notes.write(note{Kind: noteStruck, Point: point, Action: a.Action})
	go do()
	<-time.After(time.Duration(rand.IntN(2000)) * time.Microsecond)
	die()
}

// die ends the process as kill -9 does.
func die() {
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		panic(fmt.Sprintf("kill myself: %v", err))
	}
	select {}
}

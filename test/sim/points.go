package sim

// point is a place where the scheduler may let another fiber go on, move the clock, or kill a worker.
type point int

// The points. Where the fiber stands still before a call, the call has not happened yet.
const (
	atStart point = iota
	atHead
	atSpec
	atPutSpec
	atEntries
	atBlob
	atPutBlob
	atBlobWritten
	atAbsorb
	atAbsorbAgain
	atAbsorbWritten
	atAbsorbed
	atTaken
	atModel
	atModelUnwritten
	atLate
	atLateAgain
	atLateWritten
	atLateDone
	atReply
	atReplyAgain
	atReplyWritten
	atReplyDone
	atHook
	atStep
	atStepAgain
	atStepWritten
	atStepDone
	atBarrier
	atPublish
	atPublishNext
	atPublished
	atLookUp
	atMarked
	atPermission
	atTool
	atInTool
	atResult
	atArm
	atArmed
	atLetter
	atLettered
	atAck
	atAcked
	atNak
	atHeartbeat
	atJoin
	points // their number
)

// places names the points: by the crash points of docs/reliability.md, where they are one, and in words. Heartbeats and
// waiting for others do not belong to an activation: nothing that counts happens there.
var places = [points]struct{ code, what string }{
	atStart:          {"C0", "a message is delivered"},
	atHead:           {"C0", "the head is about to be read"},
	atSpec:           {"C1", "the head is read"},
	atPutSpec:        {"C1", "the agent's spec is about to be stored"},
	atEntries:        {"C1", "the journal is about to be read"},
	atBlob:           {"C1", "a blob is about to be read"},
	atPutBlob:        {"C28", "a blob is about to be written"},
	atBlobWritten:    {"C28", "a blob is written, its entry is not"},
	atAbsorb:         {"C1", "an input is about to be written"},
	atAbsorbAgain:    {"C2", "whether an input is written is not known"},
	atAbsorbWritten:  {"C2", "an input is written, and not confirmed"},
	atAbsorbed:       {"C3", "an input is durable"},
	atTaken:          {"C4", "the run is taken"},
	atModel:          {"C5", "the model works"},
	atModelUnwritten: {"C5", "the model works on what is not written yet"},
	atLate:           {"C1", "an input is about to be written, because the model takes long"},
	atLateAgain:      {"C2", "whether an input is written that a model works on is not known"},
	atLateWritten:    {"C2", "an input that a model works on is written, and not confirmed"},
	atLateDone:       {"C4", "an input that a model works on is durable"},
	atReply:          {"C6", "an input and the reply to it are about to be written"},
	atReplyAgain:     {"C7", "whether an input and the reply to it are written is not known"},
	atReplyWritten:   {"C8", "an input and the reply to it are written, and not confirmed"},
	atReplyDone:      {"C10", "an input and the reply to it are durable"},
	atHook:           {"C6", "a hook has been called, its step is not written"},
	atStep:           {"C6", "a step is about to be written"},
	atStepAgain:      {"C7", "whether a step is written is not known"},
	atStepWritten:    {"C8", "a step is written, and not confirmed"},
	atBarrier:        {"C9", "what was read is about to be confirmed"},
	atStepDone:       {"C10", "a step is durable"},
	atPublish:        {"C10", "the first event is about to be published"},
	atPublishNext:    {"C11", "a further event is about to be published"},
	atPublished:      {"C12", "an event is published, and not confirmed"},
	atAck:            {"C16", "all is done, the ack is about to be sent"},
	atAcked:          {"C16", "the ack is sent"},
	atLookUp:         {"C10", "whether a call was voided is about to be looked up"},
	atMarked:         {"C17", "an at-most-once tool is marked"},
	atPermission:     {"C6", "permission is about to be checked, or recorded"},
	atTool:           {"C17", "a tool is about to run"},
	atInTool:         {"C18", "a tool works"},
	atResult:         {"C19", "results of tools are about to be written"},
	atLetter:         {"C21", "a dead letter is about to be put"},
	atLettered:       {"C21", "a dead letter is put, its message is there still"},
	atArm:            {"C22", "the timer is about to be armed"},
	atArmed:          {"C22", "the timer is armed, and not confirmed"},
	atNak:            {"", "a nak is about to be sent"},
	atHeartbeat:      {"", "between heartbeats"},
	atJoin:           {"", "waiting for other fibers"},
}

// counted reports whether a fiber at the point does what counts.
func (p point) counted() bool { return places[p].code != "" }

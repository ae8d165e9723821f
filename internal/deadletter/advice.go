package deadletter

import (
	"cmp"
	"maps"
	"slices"

	"agentd/sdk"
)

// advice says for each reason what happened and what an operator can do (docs/dead_letters.md says more).
var advice = map[sdk.Code]string{
	sdk.CodeInvalidEvent: "It is not an event, or not on one of agentd's subjects. Whoever published it must send it anew, in the form of\n" +
		"docs/wire.md. Then drop this one. Where the detail says that no worker knew a verb: upgrade the workers and redrive.",
	sdk.CodeUnknownRun: "Nothing waits for it: it names a run or a call that does not exist, came on another subject than its\n" +
		"call's, or claims to answer something else. Mend the service. If the run was lost with its store, restore\n" +
		"the store and redrive; else drop it.",
	sdk.CodeContractViolation: "A person's answer does not fit its contract. The run still waits, and they can answer again. Drop it.",
	sdk.CodeDecisionRefused: "A decision that does not count: too late, by somebody who may not decide, or about other arguments. If\n" +
		"the request is still open, somebody who may decide can do so. Drop it.",
	sdk.CodeMessageRefused: "A message that the run does not take: it is done, its model is not called any more, its agent takes none while\n" +
		"it works, or too many wait; or tags beyond 16. See agentd runs show RUN; send it again if it still holds. Drop it.",
	sdk.CodePermissionDenied: "Whoever asked may not: the run is somebody else's, or it takes an operator. Somebody who may can do it. Drop it.",
	sdk.CodeIdentityRequired: "The agent has to know who decides or steers, and its sender was nobody in particular. Connect as a user of\n" +
		"the broker and do it again. Drop it.",
	sdk.CodeRetryRefused:  "The run cannot be retried: it has not ended, or completed, or its history is gone. Start another run. Drop it.",
	sdk.CodeUndoRefused:   "Nothing of the run can be undone, or not what was named. See agentd runs show RUN. Drop it.",
	sdk.CodeCancelRefused: "A request, a question or a turn cannot be cancelled by itself: decide or answer it, or cancel the run. Drop it.",
	sdk.CodeConflict: "Two histories claim one event, as after a store was rolled back. The event that is there stands, this one\n" +
		"was never published. Compare them, find out what the store lost (agentd audit verify), then drop it.",
	sdk.CodePoison: "Workers died over this message again and again, so its run has ended with an error. Look into their logs,\n" +
		"mend the cause, and take the run up from where it ended: agentd runs retry RUN. Then drop it.",
	sdk.CodeCorrupt: "The run's journal cannot be read; the run was left as it is, and all others go on. Find out what is wrong\n" +
		"(agentd audit verify RUN) and restore it, then redrive; or end the run: agentd runs cancel RUN",
	sdk.CodeUnknownAgent: "No worker that reads this stream serves what is called. Serve it; whoever called is told when the call\n" +
		"times out. Drop it.",
	sdk.CodeContractMissing: "The contract, or its version, is not known to whoever was asked. Deploy it. Then drop this one.",
	sdk.CodeTooLarge:        "It is larger than a limit. Whoever published it must send less. Drop it.",
	sdk.CodeInternal:        "A worker could not handle it, and its log says why. Mend the cause and redrive.",
}

// defaultAdvice is for reasons of other versions.
const defaultAdvice = "The detail says what is wrong. Mend the cause and redrive, or drop it."

// Advice says what happened to a message that was dead-lettered for a reason, and what an operator can do.
func Advice(reason sdk.Code) string { return cmp.Or(advice[reason], defaultAdvice) }

// Reasons are those that this version dead-letters for.
func Reasons() []sdk.Code { return slices.Sorted(maps.Keys(advice)) }

// Package seeds has one subtest for each row of rows.tsv: what the systems that agentd learnt from do, as an agent's
// author and the services around it see it. Every row drives the real pipeline: an embedded NATS server, a worker, and a
// scripted model; the test answers the calls.
package seeds_test

import (
	_ "embed"
	"errors"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(mcpProgram) != "" {
		serveMCP()
		return
	}
	goleak.VerifyTestMain(m)
}

// seeds are the subtests by row id.
var seeds = map[string]func(*testing.T){
	"A1": initOrResume, "A4": contextBuilder, "A5": defaultMessage, "A6": seenCountDefault,
	"A9": resumeRestoresState, "A10": matchByParentID, "A11": unmatchedResponse,
	"A14": waitForAll, "A15": appendAllResults, "A18": reasonActLoop, "A19": lifecyclePassed,
	"A20": executionUnits, "A21": interactionCounter, "A22": seenCountUpdate, "A23": allMedia,
	"A24": priorityBatches, "A27": toolUseMessage, "A28": unknownTool, "A3": mcpReleased, "A30": toolsetTool,
	"L25": allIncomplete, "L26": incompleteReply, "L27": incompleteReply, "L28": allDeflecting, "L29": deflectingReply,
	"L30": completionOverrides, "L41": degradedAnswer, "L50": unverifiedClaim, "F53": requirements, "F52": headless,
	"L37": emptyReplies, "L38": forcedSummary, "L44": forcedSummary, "L45": emptyReplies,
	"L13": streamedCompletion, "L14": callEvent, "L15": kept, "L16": inProcess, "L21": toldResults, "L22": keptResults, "L33": kept,
	"L35": finalContent, "L36": tokensAsTheyCome, "L39": serverErrors, "L40": modelChain,
	"L2": receipt, "L3": eviction, "L4": toolMerge, "L5": estimates, "L12": gates, "L20": allTruncation, "L23": eviction, "L24": eviction,
	"L46": allErrorHint, "L47": failingTool, "L48": duplicateCall, "L49": duplicateStop,
	"L6": plannedRun, "L7": plannedRun, "L9": executePhase, "L10": plannedRun, "L64": plannedRun, "L67": plannedRun, "L11": loopInstead,
	"L61": planParser, "L62": planTemplates, "L63": underDecomposed, "L65": failedStep, "L66": stepRetries,
	"L8": preFilter, "L53": categories, "L74": filterDegrades, "L75": alwaysIncluded, "L76": evaluation,
	"L1": firstEntry, "L52": sampling, "L73": contextOverlays, "F55": projectInstructions,
	"L31": eviction, "L32": eviction, "L34": estimates, "L43": estimates, "L51": eviction,
	"F42": toolSummaries, "F44": goalBatches, "F45": toolSummaries, "F46": toolSummaries,
	"L55": namesResolved, "L56": namesResolved, "L57": argumentsRepaired, "L58": callRescued, "L60": argumentsSet,
	"F54": modelFollowed, "F50": conditionalTools, "F51": customTools, "L54": allowLists,
	"L17": mcpTools, "L18": mcpTools, "L19": mcpTools, "L72": mcpLifecycle, "T70": mcpClients,
	"A31": internalTool, "A32": callValidation, "A33": callSuspends, "A36": persistOnSuspension,
	"A37": allLanes, "A38": syncOnlyRound, "A39": outputBuilder, "A40": selfCorrection,
	"A41": completion, "A42": quotaExhausted, "A43": textAndJSON,
	"B1": oneEngine, "B2": nameTranslation, "B3": toolDefinition, "B4": parentSubject,
	"B5": structuredErrors, "B6": outputValidator, "B7": contextRecord, "B8": delegation,
	"B9": eventCollection, "B12": streamListener, "B13": historyInOutput, "B14": idempotentInvocations,
	"A7": permissionContext, "A17": permissionContext, "A8": permissionPolicy, "A25": permissionPolicy, "A26": permissionPolicy,
	"A12": permissionResponse, "B11": permissionResponse, "A13": permissionFailure, "A16": answerAsText, "A29": answerAsText,
	"A34": requestEvent, "A35": requestIsACall, "B10": approvalCache,
	"T22": drained, "T48": decisionsDrained, "T49": unmatchedDecisions, "T23": durableDecision, "T25": durableDecision,
	"T24": cancelAction, "T26": resuspension, "T31": gateOutcomes, "T32": gateOutcomes, "T33": gateOutcomes, "T46": illegalTransitions,
	"F1": dynamicPrompts, "F2": promptAssembly, "F3": promptAssembly, "F4": mcpInText, "F5": promptAssembly,
	"F6": contextSections, "F7": contextSections, "F8": promptAssembly, "F58": planTracking, "F59": orderedPrompts,
	"F9": textCalls, "F10": xmlCalls, "F11": textCalls, "F12": textCalls, "F13": textCalls, "L59": textFormats, "F14": mcpInText, "F15": mcpInText,
	"F30": boundedMemory, "F43": allCompaction,
	"T47": threeResumeModes, "L68": allModes, "T63": permissionRules, "F40": autoApproval, "F39": approvalEvents,
	"L70": approvalLog, "L69": permissionStore,
	"T3": checkpointsInOrder, "T11": checkpointsInOrder, "T13": checkpointsInOrder, "T20": checkpointAtEveryEnd,
	"T57": compareAndSet, "T58": messagesOnce,
	"T1": phasesInOrder, "T2": runStartFirst, "T8": stepHooks, "T35": afterEveryOutcome,
	"T19": runEndOnEveryPath,
	"T9":  hookTerminates, "T44": hookTerminates,
	"T45": toolFiltering,
	"T61": reminders,
	"T4":  resumeGate, "T5": checkpointOfReplay, "T6": suspendedAtStart, "T7": resumeGate, "T15": resumeGate, "T16": checkpointOfDecision, "T17": resumeGate, "T27": resumeGate, "T29": resumeGate, "T30": oneResume,
	"T40": decisionsMeanwhile, "T41": decidedAtOnce, "T42": decisionsMeanwhile,
	"T12": loopTransitions, "T18": continuesWithAny, "T34": resultMapping, "T36": loopTransitions, "T37": runtimeErrors,
	"T38": twoCancels, "T39": twoCancels,
	"T14": sequentialRound, "T51": sequentialRound, "T50": decisionPolicy,
	"T21": withoutPersistence,
	"T28": snapshotOfDecision,
	"T59": repaired,
	"T43": allReasons, "T52": allStopConditions, "T53": deferredStop, "T56": countersPersist, "F24": mostInteractions, "F36": stopConditions,
	"F19": breakingTools, "F20": breakingTools, "F21": breakingTools, "F22": breakingTools, "F23": breakingTools, "F60": breakingTools,
	"F25": noToolCallEvent, "F26": noToolCall, "F29": noToolCall, "F34": noToolCall,
	"T65": supersession, "T64": mailbox, "T66": lineage, "F57": family, "T67": steering, "T68": orphanRecovery,
	"F16": callEvent, "F17": resultEvent, "F18": failureEvent, "F27": userCancels, "F41": cancelOneCall, "L42": undoStack, "L71": compensation, "F28": criticalErrors,
	"T10": distinctExits,
	"F56": allHooks,
	"F31": loopEvents, "F32": fragmentEvents, "F33": allFragments, "T62": envelope,
	"T54": retriesAndFallbacks, "T55": truncation, "F35": errorClasses, "F37": errorClasses, "F38": payloadCap, "T60": safeFrontier,
	"B15": domainAttached, "B16": missingContext, "B17": structuredOrPlain, "B18": contractVersions, "B19": systemErrorEvent,
	"A2": agentSpan, "B20": tracePropagation, "T69": spansAndMetrics, "F47": tokenAccounting,
}

//go:embed rows.tsv
var rowsFile string

// row is one line: what has to hold.
type row struct{ id, text string }

func parseRows(file string) []row {
	var rows []row
	for line := range strings.Lines(file) {
		id, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if id != "id" && id != "" {
			rows = append(rows, row{id, text})
		}
	}
	return rows
}

func TestSeeds(t *testing.T) {
	t.Parallel()
	outcomes.Clear()
	for _, r := range parseRows(rowsFile) {
		t.Run(r.id, func(t *testing.T) {
			t.Parallel()
			holds, ok := seeds[r.id]
			if !ok {
				t.Fatalf("no test shows: %s", r.text)
			}
			show(t, holds)
		})
	}
}

// outcome is that of a test which shows several rows, or a part of one. It runs for the first of them, and the others have its result.
type outcome struct {
	run  sync.Once
	name string
	held bool
}

// outcomes are those of tests, by the pointers of their functions.
var outcomes sync.Map

// show runs a test of the map of seeds, or has its result.
func show(t *testing.T, holds func(*testing.T)) {
	t.Helper()
	found, _ := outcomes.LoadOrStore(reflect.ValueOf(holds).Pointer(), &outcome{})
	o, _ := found.(*outcome)
	o.run.Do(func() {
		o.name = t.Name()
		// Also what the test leaves to clean up belongs to its result.
		o.held = t.Run("shows", holds)
	})
	if !o.held && o.name != t.Name() {
		t.Errorf("the test that shows this row fails: %s", o.name)
	}
}

func TestRows_AreThoseWithASubtest(t *testing.T) {
	t.Parallel()
	var ids, tested []string
	for _, r := range parseRows(rowsFile) {
		ids = append(ids, r.id)
	}
	for id := range seeds {
		tested = append(tested, id)
	}
	if len(ids) != 267 {
		t.Errorf("there are %d rows, want 267", len(ids))
	}
	slices.Sort(ids)
	slices.Sort(tested)
	if diff := cmp.Diff(ids, tested); diff != "" {
		t.Errorf("rows and subtests differ (-rows +subtests):\n%s", diff)
	}
}

// originals is the table that rows.tsv is a part of. Not every checkout has it.
const originals = "../../../shared/rows.tsv"

// notBuilt are the rows of the originals that nothing shows, and why. They are of the kind X, which is worth having, and not of S, which
// must work.
var notBuilt = map[string]string{
	"F48": "agentd has no tools of its own for notes; a toolset of an MCP server gives an agent some",
	"F49": "agentd keeps no memory beyond a run; the hooks Context and Retrieval give a run what another memory has found",
}

func TestRows_SayWhatTheOriginalsSay(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile(originals)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the original table is not here")
	}
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range parseRows(rowsFile) {
		got[r.id] = r.text
	}
	want := map[string]string{}
	for _, r := range parseRows(string(table)) {
		if _, kind, _ := strings.Cut(r.text, "\t"); notBuilt[r.id] == "" || !strings.HasPrefix(kind, "X\t") {
			want[r.id] = r.text
		}
	}
	if len(want) == 0 {
		t.Error("the original table is empty")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows differ from the originals (-originals +rows):\n%s", diff)
	}
}

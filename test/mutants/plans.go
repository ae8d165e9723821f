package main

const (
	plans = "internal/planning."
	// ofPlan is a step of the head's plan, and what the plan says of it.
	ofPlan = "internal/core.Plan."
)

// ofPlans are noticed by the tests of rows of agents that plan, and by the simulator.
var ofPlans = []mutant{
	{"an agent that plans is asked in a loop", around(core+"Spec.nextPlanned", "return nil"), rows{"L6", "L7", "L9", "L10", "L61", "L62", "L64", "L67"}},
	{"the agent's own model plays every role", condition("internal/catalog.Catalog.role", "spec nil", "true"), rows{"L6", "L7", "L9", "L10"}},
	{"a planner may call tools", statement(act+"askPlanner", "System Messages", "$\nrequest.Tools = tools"), rows{"L7"}},
	{"a planner is not told which tools there are", call(act+"askPlanner", "Planner told", "form.Planner(a.state.System, tools[:0], a.state, told)"), rows{"L7"}},
	{"a planner is not asked for structured output", statement(act+"askPlanner", "Output Schema", ""), rows{"L61"}},
	{"every planner is asked for structured output", around("internal/catalog.planForm", "return planning.JSONForm"), rows{"L61"}},
	{"steps are done one after the other", around(ofPlan+"due", "due := original()\nreturn due[:min(1, len(due))]"), rows{"L6", "L67"}},
	{"a router is shown the conversation", statement(act+"route", "System Messages", "$\nrequest.Messages = a.state.Conversation().Messages"), rows{"L9", "L64"}},
	{"a router is offered what fits by now", around(act+"routed", `
		if a.agent.Selection != nil {
			a.state.StepOffers = []core.StepOffer{{Step: step.Number, Tools: a.agent.Selection.Fit(context.Background(), step.Text).Tools}}
		}
		return original(s, step)`), rows{"L9"}},
	{"a router is offered other tools than the journal has", around(act+"routed", "return a.routable(s)"), simulator},
	{"the tools that a plan names are not offered", around(plans+"Hinted", "return false"), rows{"L9"}},
	{"the agent's own model writes the answer", around(act+"model", "return Role{a.agent.Model, a.agent.ModelName}"), rows{"L10"}},
	{"what is written of a plan is not judged", condition(act+"judged", "a agent Judge nil", "!a.state.Synthesizes()"), test{"test/pipeline", "TestPlan_AnswersAreJudged"}},
	{"plans and calls of steps are streamed", call(act+"consult", "Generate within", `model.Generate(within, request, func(sdk.Delta) { a.live("model.delta", a.state.Turns, func() any { return sdk.Delta{Text: "…"} }) })`), rows{"L10"}},
	{"a call that cannot be chosen loses all others", condition(act+"routeSteps", "undecided ctx err", "err == nil || !errors.Is(err, errNoTokens)"), test{"internal/runner", "TestRoute_KeepsWhatWasChosen"}},
	{"choices that came to nothing are free", call(step+"driven", "cost", ""), test{"internal/runner", "TestRoute_KeepsWhatWasChosen"}},
	{"a step waits for the calls of others because its router failed once", around(act+"chooseTwice", "a.chooseCalls(ctx, s, choices)"), test{"internal/runner", "TestRoute_WaitsForARouterThatFailsOnce"}},
	{"a model that hangs is asked for each element of a list", statement(act+"chooseCalls", "failed left err", "_ = left"), test{"internal/runner", "TestRoute_OfAModelThatHangsParksTheRun"}},
	{"a turn of planning spends what there is not", around(act+"outOfTokens", "return false"), test{"internal/runner", "TestBudget_HoldsWithinATurn"}},
	{"models of a turn are not told what those before have used", call(act+"use", "Add used", ""), test{"internal/runner", "TestBudget_HoldsWithinATurn"}},
	{"replies that come to nothing are free", around(act+"accounted", "return event, err"), test{"internal/runner", "TestCosts_OfAReplyThatComesToNothingCount"}},
	{"replies that are not written are free", condition(act+"counted", "told", "false"), test{"internal/runner", "TestCosts_OfAReplyThatIsNotWrittenCount"}},
	{"what a reply that was not written has used is there again", around(act+"spent", "return &a.state.Head"), test{"internal/runner", "TestBudget_HoldsWhereAReplyIsNotWritten"}},
	{"a plan is lost with the one that was to be better", condition(act+"askPlanner", "err ctx best Answer", "errors.Is(err, errNoTokens)"), test{"internal/runner", "TestPlanner_ThatFailsOnceMoreIsTakenAtItsWord"}},
	{"a planner's answer is not taken", condition(act+"makePlan", "fault Answer", "false"), rows{"L61"}},

	{"steps that failed push out what is done", around(core+"PlanStep.guards", "return false"), test{"internal/core", "TestPlan_KeepsWhatItsStepsHaveDone"}},
	{
		"a plan is replaced where what is done has no room", around(ofPlan+"roomForAnother", "return true"),
		test{"internal/core", "TestPlan_IsNotReplacedWhereWhatIsDoneHasNoRoom"},
	},

	// Lists and conditions.
	{"a condition holds always", around(plans+"Holds", "return true, nil"), test{"test/pipeline", "TestPlan_OfListsAndConditions"}},
	{"what comes after a skipped step is given up", condition(ofPlan+"cannotBe", "before StepSkipped", "false"), test{"test/pipeline", "TestPlan_OfListsAndConditions"}},
	{"a step that is skipped has failed", value(step+"route", "Status StepSkipped", "StepFailed"), test{"internal/core", "TestPlan_SkipsWhatComesAfterASkippedStep"}},
	{"an element that failed is done", around(core+"PlanStep.elementFailed", "original(place, kept, fault)\ns.Elements[place].Status = StepDone"), test{"internal/core", "TestPlan_DoesAStepForEachElement"}},
	{"why an element failed is not told", statement(core+"PlanStep.elementFailed", "Fault cmp", ""), test{"test/pipeline", "TestPlan_OfListsAndConditions"}},
	{"a failed element fails its step", value(core+"PlanStep.endElements", "Status StepDone", "StepFailed"), test{"internal/core", "TestPlan_DoesAStepForEachElement"}},
	{"another plan makes again what an element has done", around(core+"Element.guards", "return false"), test{"internal/core", "TestPlan_DoesAStepForEachElement"}},
	{"more elements are called than a round has", condition(act+"dueChoices", "due choices MaxRound", "due"), test{"test/pipeline", "TestPlan_OfListsAndConditions"}},
	{"lists are as long as they are", around(ofPlan+"RoomForElements", "return 1000"), test{"test/pipeline", "TestPlan_OfListsThatCannotBe"}},
	{"routers are not shown the element", statement(plans+"Router", "text element Place", ""), test{"test/pipeline", "TestPlan_OfListsAndConditions"}},
	{"lists are of what models are shown", around("internal/runner.activation.callResult", "return a.state.StepResult(&core.PlanStep{Call: call}), nil"), test{"test/pipeline", "TestPlan_OfListsAndConditions"}},
	{"a list without elements is never done", around(core+"PlanStep.endElements", "original()\nif len(s.Elements) == 0 {\ns.Status = StepFailed\n}"), test{"internal/core", "TestPlan_OfListsThatComeToNothing"}},
	{
		"a plan is replaced where elements that are done have no room", statement(ofPlan+"roomForAnother", "guards elementsOf", "return len(guards) <= maxKeptSteps-MaxPlanSteps"),
		test{"internal/core", "TestPlan_IsNotReplacedWhereElementsHaveNoRoom"},
	},
	{"steps keep the numbers of their plan in expressions", call(plans+"rewrite", "nameOf", "code[m[0]:m[1]]"), test{"internal/planning", "TestParse_ReadsConditionsAndLists"}},
	{"any expression is a list", around(plans+"checkExpressions", "return nil"), test{"internal/planning", "TestParse_ReadsConditionsAndLists"}},

	// What planners, routers, tools and people write is bounded, and means one thing.
	{"elements of a list are in any order", around("internal/expression.ordered.Iterator", "return o.Mapper.Iterator()"), test{"internal/planning", "TestElements_AreInOneOrder"}},
	{"elements of a list are as large as they are", around("internal/expression.decoder.text", "return text"), test{"internal/planning", "TestElements_AreBounded"}},
	{"lists are made before they are refused", condition("internal/expression.CompileStepList", "ok most", "false"), test{"internal/planning", "TestElements_AreBounded"}},
	{"expressions call results of any size", around("internal/runner.activation.resultSize", "return 0"), test{"test/pipeline", "TestPlan_OfResultsThatAreTooLarge"}},
	{"a number is that of several steps", around(plans+"severally", "return false"), test{"internal/planning", "TestParse_RefusesReferencesThatNobodyUnderstands"}},
	{
		"steps are referred to by lists of numbers alone", around(plans+"fields.numbers", "var all []int\n_ = json.Unmarshal(f[name], &all)\nreturn all"),
		test{"internal/planning", "TestParse_ReadsWhatPlannersWriteInPlaceOfNumbersAndTexts"},
	},
	{
		"expressions are written in one line, with single spaces", around(plans+"asWritten", "return plain(written)"),
		test{"internal/planning", "TestParse_ReadsWhatPlannersWriteInPlaceOfNumbersAndTexts"},
	},
	{"faults of steps are as long as they are as JSON", around(core+"clipJSON", "return text[:min(len(text), limit)]"), test{"internal/core", "TestPlan_IsNoLargerThanItMayBe"}},
	{"what people decide is what they ask for", around(core+"tellsOfCalls", "return false"), test{"test/pipeline", "TestPlan_RoutersAreShownTheRequest"}},
	{"an edited call is done as its model wanted it", around(ofPlan+"edited", ""), test{"test/pipeline", "TestPlan_AnEditedCallIsNotMadeAgain"}},
	{"a reply that is too large ends the run", around("internal/runner.tooLarge", "return false"), test{"test/pipeline", "TestPlan_OfModelsWhoseRepliesAreTooLarge"}},
	{"a plan that is too large is asked for without a word", condition(act+"askPlanner", "unread Fault", "false"), test{"test/pipeline", "TestPlan_OfModelsWhoseRepliesAreTooLarge"}},
	{"steps of a run that has ended are to be done", around("internal/show.closed", "return steps"), test{"internal/show", "TestRunDetails_OfAPlan"}},
	{"a step ends the run", condition(act+"unmade", "Skips", "false"), test{"test/pipeline", "TestPlan_NoStepIsDoneWithWhatEndsARun"}},
	{
		"that a plan is cut short is not told", around(plans+"SoFar", `
		if p != nil && p.Phase == core.PhaseSteps {
			return ""
		}
		return original(p)`), test{"test/pipeline", "TestPlan_ThatTheLimitCutsShort"},
	},
	{"steps are to be done for ever", statement(step+"answersPlan", "giveUpSteps", ""), test{"test/pipeline", "TestPlan_ThatTheLimitCutsShort"}},

	// Approval by people.
	{"a refused plan is carried out", around(step+"planRefused", "t.Head.Plan.Phase = PhaseSteps"), test{"test/pipeline", "TestPlanReview_ARefusedPlanIsNotCarriedOut"}},
	{"a plan that is refused is not planned anew", condition(step+"planRefused", "said replans", "false"), test{"test/pipeline", "TestPlanReview_ARefusedPlanIsNotCarriedOut"}},
	{"planners are not told why nobody approved", condition(plans+"stepsSoFar", "Refused", "false"), test{"test/pipeline", "TestPlanReview_ARefusedPlanIsNotCarriedOut"}},
	{"a plan is carried out as it was before it was edited", statement(step+"planReviewed", "Phase PhaseSteps Steps", "p.Phase = PhaseSteps"), test{"test/pipeline", "TestPlanReview_APersonEditsThePlan"}},
	{"edited plans are not checked", around(plans+"ReadReviewed", "return data, nil"), test{"test/pipeline", "TestPlanReview_APersonEditsThePlan"}},
	{"the loop does what nobody has approved", condition(step+"withoutPlan", "reviewTool", "false"), test{"test/pipeline", "TestPlanReview_WithoutAPlanNothingIsDone"}},
	{"models call the tool of plans", condition(core+"admitter.arguments", "Reviews", "false"), test{"test/pipeline", "TestPlanReview_IsNoToolOfModels"}},
	{"plans that people approve are read as JSON", around("internal/show.readPlan", "plan, _ = original(tool, args)\nreturn plan, false"), test{"internal/show", "TestProposal_OfAPlan"}},
	{
		"what steps do not show of a plan is hidden", around("internal/show.readPlan", "plan, _ = original(tool, args)\nreturn plan, len(plan.Steps) > 0"),
		test{"internal/show", "TestProposal_HidesNothing"},
	},
	{"that a plan was edited is not told", value(told+"planned", "Edited approvedEdited", "false"), test{"cmd/agentd", "TestApprovals_OfPlans"}},
	{"plans that are under review are carried out", value(step+"review", "Phase PhaseReview", "PhaseSteps"), test{"test/pipeline", "TestPlanReview_APersonEditsThePlan"}},

	// Without a plan.
	{"a run without a plan is one whose plan is done", value(step+"withoutPlan", "Phase PhaseLoop", "PhaseAnswer"), rows{"L11", "L66"}},
	{"the loop makes again what a step has done", condition(core+"Admission.done", "Plan Made PhaseLoop -StepDone", "s.Plan < h.Plan.Made"), rows{"L11"}},
	{"that a plan came to nothing is not told", condition(told+"stepsEnded", "PhaseLoop", "false"), rows{"L11"}},

	// How plans are read.
	{"plans are read as JSON alone", around(plans+"parseCalls", `return nil, ""`), rows{"L61"}},
	{"plans are read as calls alone", around(plans+"parseObject", `return nil, ""`), rows{"L61"}},
	{"plans in JSON are not repaired", call(plans+"parseObject", "Repair", ""), rows{"L61"}},
	{"a step may come after any", around(plans+"refer", "_, _ = original(n, before, kept, first)\nreturn n, true"), test{"internal/planning", "TestParse_SaysWhatIsWrong"}},
	{
		"step 10 in a text is step 1 as well", around(plans+"mentioned", `
		all := original(text)
		for _, n := range all {
			all = append(all, n/10)
		}
		return all`),
		test{"internal/planning", "TestParse_ReadsWhatPlannersWrite"},
	},
	{"steps that a text names count for nothing", around(plans+"mentioned", "return nil"), rows{"L64"}},
	{"no request has a plan of its own", around(plans+"Template", "return nil"), rows{"L62"}},
	{"a word of one group is enough for a template", around(plans+"hasAll", `
		for _, group := range groups {
			if original(words, [][]string{group}) {
				return true
			}
		}
		return false`), rows{"L62"}},
	{"steps of templates wait for nothing", value(plans+"FromTemplate", "after", "nil"), rows{"L62"}},
	{"one step is enough for any request", around(plans+"Compound", "return false"), rows{"L63"}},
	{"one step is never enough", around(plans+"Compound", "return true"), rows{"L63"}},
	{"the second plan is taken though it is shorter", condition(act+"askPlanner", "best plan len -unread", "true"), rows{"L63"}},

	// What models are told of steps.
	{"routers are not told what a step refers to", condition(plans+"Router", "After other", "false"), rows{"L64"}},
	{"routers are not told of the step before", condition(plans+"Router", "other step Number -After", "false"), rows{"L64"}},
	{"planners are not told what people have decided since", around(plans+"decisions", `return ""`), test{"test/pipeline", "TestPlanAttack_PermissionModeRetry"}},
	{"planners are told all that people have ever decided", condition(plans+"decisions", "told mostDecided", "false"), test{"internal/planning", "TestPlanner_IsToldTheLatestDecisions"}},
	{"what MCP servers answer as text has no lists", around(plans+"inText", "return result"), test{"internal/planning", "TestExpressions_OfResults"}},
	{"another plan is made without what is done", around(plans+"stepsSoFar", `return ""`), rows{"L65"}},
	{"who writes the answer is not told what has failed", around(plans+"Synthesis", `
		none := *p
		none.Steps = nil
		return original(&none)`), rows{"L65"}},

	// Steps that fail.
	{"what fails is done", value(step+"stepEnded", "Status StepFailed", "StepDone"), rows{"L65"}},
	{"a failed step gives up all that are not begun", around(ofPlan+"cannotBe", `
		if p.any(StepFailed) {
			s.Status = StepGivenUp
			return true
		}
		return original(s)`), rows{"L65"}},
	{"steps are not given up whose references have failed", around(ofPlan+"cannotBe", "return false"), rows{"L65"}},
	{"plans are made for ever", around(core+"Spec.replans", "return 100"), rows{"L65"}},
	{"a step that has failed is passed over", around(core+"Spec.replans", "return 0"), rows{"L65"}},
	{"another plan forgets what was done", around(ofPlan+"Kept", "return nil"), rows{"L65"}},
	{"steps are counted anew in each plan", around(ofPlan+"NextNumber", "return 1"), rows{"L65"}},
	{"a call that cannot be made is that of a step", around(act+"unmade", `return ""`), rows{"L66"}},
	{"routers are not told what is wrong", around(plans+"NoCall", "return nil"), rows{"L66"}},
	{"a text is never taken for a call", around(plans+"InText", "return nil"), rows{"L66"}},
	{"the first tool of a text is that of a step", around(plans+"InText", `
		for _, t := range tools {
			if strings.Contains(text, t.Name) {
				return original(t.Name, []sdk.ToolDefinition{t})
			}
		}
		return nil`), rows{"L66"}},

	// How models are graded.
	{"any tool is right", condition("internal/eval.ExpectedCall.fault", "call Name Tool", "false"), rows{"L76"}},
	{"any arguments are right", condition("internal/eval.ExpectedCall.fault", "want canonical string", "false"), rows{"L76"}},
	{"a model that is right once is right", around("internal/eval.passK", "return original(min(1, right)*tries, tries, k)"), rows{"L76"}},
	{"calls that nobody asked for are right", around("internal/eval.Suite.expected", "return original(left, calls[:min(len(calls), len(left))])"), rows{"L76"}},

	// What is told.
	{"plans are not told", around(told+"planned", ""), rows{"L67"}},
	{"what became of steps is not told", around(told+"stepsEnded", ""), rows{"L67", "L11"}},

	// Whoever drives a run, its plan is the one in the journal, and its steps are called once (I19).
	{"a step that has failed is called again", value(step+"stepEnded", "Status StepFailed", "StepPlanned"), simulator},
	{"a step is called before those that it refers to are done", around(ofPlan+"due", `
		free := *p
		free.Steps = slices.Clone(p.Steps)
		for i := range free.Steps {
			free.Steps[i].After = nil
		}
		return free.dueUnbroken()`), simulator},
	{"another plan makes again what a step has done", condition(core+"Admission.done", "Plan Made PhaseLoop -StepDone", "h.Plan.Phase == PhaseLoop"), simulator},
	{"who takes over a run makes another plan", around(step+"take", `
		original()
		if p := t.Head.Plan; p != nil && p.Phase == PhaseSteps {
			p.Phase = PhasePlanning
		}`), simulator},
	{"calls are chosen before the plan is durable", around(act+"makePlan", `
		event, err := original(ctx)
		if made, ok := event.(core.Planned); ok && len(made.Steps) > 0 {
			was := a.state.Plan
			a.state.Plan = &core.Plan{Steps: made.Steps}
			a.route(ctx, &hookEffects{}, &choice{step: &made.Steps[0]})
			a.state.Plan = was
		}
		return event, err`), simulator},
	{"calls of steps need no permission", call(act+"routeSteps", "rule", `func() error {
		for i := range ev.Admission.Calls {
			ev.Admission.Rule(i, core.Ruling{Verdict: core.VerdictAllow})
		}
		return nil
	}()`), simulator},
}

package main

// ofSecrets are about what strangers may see, and what they may make others see.
var ofSecrets = []mutant{
	{"the password of an address without a scheme is shown", around("internal/address.Hide", "if !strings.Contains(list, \"://\") {\nreturn list\n}\nreturn original(list)"), test{"internal/address", "TestHide_HidesWhoOneIsHoweverItIsWritten"}},
	{"a proof is not looked at beside the login of an address", around("internal/address.WithoutLogin", "return server"), test{"internal/broker", "TestConnectOptions_AProofIsShownAlone"}},
	{"who does not reach a model repeats the whole URL", around("internal/address.Failure", "return err"), test{"internal/llm", "TestOpenAI_NobodyListens"}},
	{"who does not reach an MCP server repeats the whole URL", call("internal/mcp.httpTap.SendRequest", "Failure", "err"), test{"internal/mcp", "TestServer_DoesNotTellItsURL"}},
	{"permissions whose rules are commented out are none", condition("internal/strict.place.dropEmpty", "neverEmpty", "item.kind == isNull && next.optional"), test{"cmd/agentd", "TestCheck_SaysWhatIsWrongWhere/protects_nothing"}},
	{"everybody on the machine reads the index of runs", call("internal/index/sqlite.mark", "OpenFile", "os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)"), test{"internal/index/sqlite", "TestOpen_NobodyElseReadsTheFiles"}},
	{"a terminal obeys an answer of the model", around("cmd/agentd/internal/cli.WriteText", "_, err := io.WriteString(w, text)\nreturn err"), test{"cmd/agentd/internal/follow", "TestPrintResult_OnATerminalAllOfAnAnswerIsSeen"}},
	{"a terminal obeys what the registry has", call("cmd/agentd/contracts.writeContracts", "Visible Type", "r.Type"), test{"cmd/agentd/contracts", "TestWrite_ShowsAllThatOthersWrote"}},
	{"a login is kept that no request can carry", condition("internal/console.console.finishLogin", "session cookiesMost", "false"), test{"cmd/agentd", "TestConsole_RefusesAWordThatNoRequestCanCarry"}},
	{"who is interrupted at a prompt has failed", around("cmd/agentd/internal/cli.Interrupted", "return err"), test{"cmd/agentd", "TestApprovals_AreLeftAloneByWhoIsInterrupted"}},
}

// Package docs types the commands that the pages show, into a shell, against real servers and the binaries as they are, and
// compares what the pages say that they print.
//
// Every block of commands (```console, ```sh, ```bash) of README.md and docs/ is typed by a session of sessions_test.go, or
// has a comment on the line before it that says why not:
//
//	<!-- run by test/interop TestDocs_AnswerByHand -->
//	<!-- not run: it needs a cluster -->
//
// The first is checked to exist. Both are checked to be valid shell, and what they call of agentd to have these
// subcommands and flags, as are the commands within sentences.
package docs

package sizes

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/index"
	"agentd/sdk/wire"
	"agentd/test/capture"
	"agentd/test/poll"
	"agentd/test/ports"
)

const (
	// manyVariable is the environment variable with how many runs the console's index has; there the lists must be quick, too: on a machine
	// that does nothing else.
	manyVariable = "AGENTD_TEST_RUNS"
	// consoleMemory is the most that a console may take for a million runs, in MB.
	consoleMemory = 150
	// quick is how long the slowest of a hundred lists may take.
	quick = 100 * time.Millisecond
	// patience is how long a program may take for anything.
	patience = time.Minute
)

// A console in a process of its own keeps within its memory, however many runs its index has, and lists them quickly.
func TestConsole_MemoryOfManyRuns(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("the memory of other processes is read where there is a /proc")
	}
	runs, err := strconv.Atoi(os.Getenv(manyVariable))
	measured := err == nil
	if !measured {
		runs = 20_000
	}
	p := programs{t: t, agentd: filepath.Join(t.TempDir(), "agentd")}
	tool(t, []string{"CGO_ENABLED=0"}, "build", "-o", p.agentd, "./cmd/agentd")
	config := filepath.Join(t.TempDir(), "agentd.yaml")
	if err := os.WriteFile(config, []byte("agents: [{name: payer, system: Pay., model: {provider: openai, name: gpt-4o-mini}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := "nats://127.0.0.1:" + strconv.Itoa(ports.Free(t))
	p.start("dev", "--server-only", "--config", config, "--data", t.TempDir(), "--port", address[len("nats://127.0.0.1:"):]).says(t, `(?m)^ready`)
	if out, err := exec.Command(p.agentd, "provision", "--index", "--config", config, "--nats", address).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p.start("serve", "--config", config, "--nats", address).says(t, `msg=serving|"msg":"serving"`)
	last := publish(t, address, runs)
	console := p.start("console", "--config", config, "--nats", address, "--http", "127.0.0.1:0", "--index", t.TempDir(), "--as", "anna")
	base := console.says(t, `console +(http://\S+)/`)
	within := patience + time.Duration(runs)*time.Millisecond
	poll.Until(t, within, "the console has all runs", func() bool {
		return regexp.MustCompile(fmt.Sprintf(`>order %d<`, last)).MatchString(get(t, base+"/runs?q="+url.QueryEscape("run:"+strconv.Quote(fmt.Sprint("order ", last)))))
	})
	t.Logf("with %d runs in its index, the console has %d MB, and had at most %d", runs, console.memory("VmRSS"), console.memory("VmHWM"))
	for _, path := range []string{"/", "/runs", "/runs?q=tag.tenant%3At7", "/runs?q=status:waiting", "/runs?q=-reason:completed", "/runs?q=" + url.QueryEscape(`agent:pay* "customer 7"`)} {
		var took []time.Duration
		for range 100 {
			began := time.Now()
			get(t, base+path)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		t.Logf("%-50s median %s, slowest of %d %s", path, took[50].Round(time.Microsecond), len(took), took[99].Round(time.Microsecond))
		if measured && took[99] > quick {
			t.Errorf("%s takes %s; want at most %s", path, took[99], quick)
		}
	}
	if most := console.memory("VmHWM"); most > consoleMemory {
		t.Errorf("the console took %d MB; want at most %d", most, consoleMemory)
	} else {
		t.Logf("after 600 lists it has %d MB, and had at most %d", console.memory("VmRSS"), most)
	}
}

// publish writes the documents of so many runs, of which one of ten waits for a permission and one has failed, and returns the number of
// the one that changed last.
func publish(t *testing.T, address string, runs int) int {
	t.Helper()
	conn, err := broker.Connect(t.Context(), broker.ConnectOptions{URL: address, Subjects: wire.DefaultSubjects()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	for n := range runs {
		d := index.Document{
			V: index.DocumentVersion, Run: fmt.Sprint("order ", n), Agent: "payer", Rev: 4, Etag: fmt.Sprint("etag-", n), Who: "shop",
			Status: wire.StatusDone, Reason: wire.ReasonCompleted, Started: began.UnixMilli() - 60_000, Changed: began.UnixMilli() - int64(runs-n)*100,
			Tags: map[string]string{"order": strconv.Itoa(n), "tenant": fmt.Sprint("t", n%1000)}, Turns: 3, Tokens: index.Tokens{In: 1200, Out: 80},
			Text: fmt.Sprintf("Two weeks in Lisbon for customer %d, please", n%5000),
		}
		switch n % 10 {
		case 0:
			d.Status, d.Reason, d.Due = wire.StatusWaiting, "", began.UnixMilli()+3_600_000
			d.Waits = []index.Wait{{Kind: "permission", Tool: "pay", ID: fmt.Sprint("c1-0-", n)}}
		case 1:
			d.Reason = wire.ReasonError
		}
		data, err := d.Encode()
		if err == nil {
			err = conn.PublishIndexed(broker.IndexedRun{Run: wire.NewRunKey(d.Run), Revision: d.Rev, Data: data})
		}
		if err != nil {
			t.Fatal(err)
		}
		if n%2000 == 1999 || n == runs-1 { // the server takes no more than it can store
			poll.Until(t, patience, "the stream has the documents", func() bool {
				state, err := conn.IndexState(t.Context())
				return err == nil && state.Last >= uint64(n+1)
			})
		}
	}
	t.Logf("%d documents were written in %s", runs, time.Since(began).Round(time.Millisecond))
	return runs - 1
}

// programs starts agentd's commands.
type programs struct {
	t      *testing.T
	agentd string
}

// program is one that runs until the test ends.
type program struct {
	cmd *exec.Cmd
	out *capture.Output
}

func (p programs) start(args ...string) program {
	p.t.Helper()
	started := program{cmd: exec.CommandContext(context.WithoutCancel(p.t.Context()), p.agentd, args...), out: &capture.Output{}}
	started.cmd.Stdout, started.cmd.Stderr = started.out, started.out
	started.cmd.Env = append(os.Environ(), "OPENAI_API_KEY=none") // no model is called
	if err := started.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if p.t.Failed() {
			p.t.Logf("%s:\n%s", args[0], started.out)
		}
		_ = started.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself, which the test has noticed
		_ = started.cmd.Wait()
	})
	return started
}

// says waits until the program has printed a pattern, and returns what its group is.
func (p program) says(t *testing.T, pattern string) (found string) {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	poll.Until(t, patience, "it prints "+pattern, func() bool {
		m := expression.FindStringSubmatch(p.out.String())
		if m != nil {
			found = m[len(m)-1]
		}
		return m != nil
	})
	return found
}

// memory is a line of the program's status, in MB.
func (p program) memory(line string) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	m := regexp.MustCompile(line + `:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		return 0
	}
	kilobytes, _ := strconv.Atoi(string(m[1])) // it is digits
	return kilobytes >> 10
}

func get(t *testing.T, address string) string {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", address, response.Status, err)
	}
	return string(page)
}

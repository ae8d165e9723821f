package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"agentd/internal/bench"
	"agentd/internal/broker/provision"
)

var followed = regexp.MustCompile(`sse-connect="([^"]+)"`)

// consoles prints what pages of a console that are open cost those who work: loads without them and with them take turns. The console
// is a process of its own, as in production; that it runs at all is in both loads.
func consoles(ctx context.Context, pages, concurrency int, duration time.Duration) (err error) {
	s, err := openSystem(ctx, "", bench.Agent())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if _, err := provision.Apply(ctx, s.Control, provision.Plan{Index: true}); err != nil {
		return err
	}
	address, stop, err := startConsole(ctx, s.url)
	if err != nil {
		return err
	}
	defer func() {
		spent, stopErr := stop()
		err = errors.Join(err, stopErr)
		fmt.Printf("the console took %.2f s of a processor for all of it\n", spent.Seconds())
	}()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "open pages\truns/s at %d\tprocessor ms a run\tone run p50 ms\tp99 ms\tpages told\t\n", concurrency)
	for round := range 7 {
		open := 0
		if round%2 == 0 {
			open = pages
		}
		told, leave, err := read(ctx, address, open)
		if err != nil {
			return err
		}
		l, err := s.load(ctx, bench.Load{Turns: 3, Clients: concurrency, Duration: duration, Alone: duration / 2})
		if err != nil {
			return err
		}
		if round > 0 { // the first one warms up
			fmt.Fprintf(w, "%d\t%s\t%d\t\n", open, l, told())
		}
		if err := leave(); err != nil {
			return err
		}
	}
	return w.Flush()
}

// startConsole builds agentd, starts its console on the server at url, and returns the console's address. stop ends it, and says how
// much time of a processor it took.
func startConsole(ctx context.Context, url string) (address string, stop func() (time.Duration, error), err error) {
	dir, err := os.MkdirTemp("", "agentd-bench-console")
	if err != nil {
		return "", nil, err
	}
	binary, config := filepath.Join(dir, "agentd"), filepath.Join(dir, "agentd.yaml")
	if err := errors.Join(
		os.WriteFile(config, []byte("nats: {url: "+url+"}\nstore: jetstream\n"), 0o600),
		exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/agentd").Run(),
	); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	cmd := exec.Command(binary, "console", "--config", config, "--http", "127.0.0.1:0", "--index", dir)
	cmd.Stderr = os.Stderr
	said, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := cmd.Start(); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop = func() (time.Duration, error) {
		signalled := cmd.Process.Signal(os.Interrupt)
		err := cmd.Wait()
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), errors.Join(signalled, err, os.RemoveAll(dir))
	}
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if _, after, found := strings.Cut(lines.Text(), "http://"); found {
			go func() { _, _ = io.Copy(io.Discard, said) }() // nobody reads the rest
			return "http://" + strings.TrimRight(strings.Fields(after)[0], "/"), stop, nil
		}
	}
	_, stopErr := stop()
	return "", nil, errors.Join(errors.New("the console does not say where it is"), stopErr)
}

// read follows the list of runs as so many open pages do, all of which follow it when read returns. told is how many of them were told
// of runs; leave closes them.
func read(ctx context.Context, address string, pages int) (told func() int64, leave func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	var heard atomic.Int64
	errs := make(chan error, pages)
	leave = func() error {
		cancel()
		reading.Wait()
		close(errs)
		var all []error
		for err := range errs {
			all = append(all, err)
		}
		return errors.Join(all...)
	}
	for range pages {
		events, err := follow(ctx, address)
		if err != nil {
			return nil, nil, errors.Join(err, leave())
		}
		reading.Go(func() {
			told := sync.OnceFunc(func() { heard.Add(1) })
			lines := bufio.NewScanner(events)
			for lines.Scan() {
				if lines.Text() == "event: news" {
					told()
				}
			}
			if err := errors.Join(lines.Err(), events.Close()); err != nil && ctx.Err() == nil {
				errs <- err
			}
		})
	}
	return heard.Load, leave, nil
}

// follow opens the list of runs, and what tells that page of changes.
func follow(ctx context.Context, address string) (io.ReadCloser, error) {
	page, err := get(ctx, address+"/runs")
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(page)
	if err := errors.Join(err, page.Close()); err != nil {
		return nil, err
	}
	found := followed.FindSubmatch(text)
	if found == nil {
		return nil, errors.New("the list of runs says nothing to follow")
	}
	return get(ctx, address+html.UnescapeString(string(found[1])))
}

func get(ctx context.Context, url string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("GET %s: %s", url, response.Status), response.Body.Close())
	}
	return response.Body, nil
}

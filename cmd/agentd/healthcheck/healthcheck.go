// Package healthcheck is agentd healthcheck.
package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
)

// defaultHealth is where healthcheck asks, and what the image has serve listen on.
const defaultHealth = ":8080"

// Command is agentd healthcheck.
func Command(a *cli.App) *cobra.Command {
	var address string
	var live bool
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask a worker on this machine whether it is ready",
		Long: "healthcheck asks agentd serve --http, or agentd mock-llm, for images that have no shell and no curl. Exit codes:\n" +
			"0 it is ready (or, with --live, alive), 1 it is not, or does not answer within 5 s.",
		Example: "  agentd healthcheck\n  agentd healthcheck --http :9090 --live",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := "/readyz"
			if live {
				path = "/livez"
			}
			url, err := healthURL(address, path)
			if err != nil {
				return cli.Usage(err)
			}
			if err := askHealth(cmd.Context(), url); err != nil {
				return err
			}
			return a.Print(map[string]string{"status": "ok"}, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, "ok")
				return err
			})
		},
	}
	cmd.Flags().StringVar(&address, "http", defaultHealth, "address that the worker serves with --http")
	cmd.Flags().BoolVar(&live, "live", false, "ask whether the process is there, not whether it is ready")
	return cmd
}

// healthURL is the URL of a path at an address that something listens on.
func healthURL(address, path string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("--http %q: want an address such as :8080", address)
	}
	if host == "" || host == "0.0.0.0" || host == "::" {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port) + path, nil
}

// healthTimeout is longer than a worker takes for its answer.
const healthTimeout = 5 * time.Second

func askHealth(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no proxy
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	err = errors.Join(err, response.Body.Close())
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New("not ready: " + strings.TrimSpace(string(text)))
	}
	return err
}

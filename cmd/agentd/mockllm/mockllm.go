// Package mockllm is agentd mock-llm.
package mockllm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/httpguard"
	"agentd/internal/llm/mockllm"
)

// Command is agentd mock-llm.
func Command(a *cli.App) *cobra.Command {
	var script, listen string
	cmd := &cobra.Command{
		Use:   "mock-llm --script FILE",
		Short: "Serve a scripted model over OpenAI's and Anthropic's protocols",
		Long: "mock-llm answers from a script, so that agents run without a key.\n" +
			"Point an agent at it with OPENAI_BASE_URL=http://ADDRESS/v1, or ANTHROPIC_BASE_URL=http://ADDRESS.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := mockllm.LoadScript(script)
			if err != nil {
				return cli.Usage(err)
			}
			return serveHTTP(cmd.Context(), a, listen, mockllm.New(s), "mock-llm")
		},
	}
	cmd.Flags().StringVar(&script, "script", "", "the conversations to answer from (YAML or JSON)")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:4380", "address to listen on; port 0 takes a free one")
	_ = cmd.MarkFlagRequired("script") // the flag exists
	return cmd
}

// serveHTTP serves until ctx ends, and prints the address once it listens.
func serveHTTP(ctx context.Context, a *cli.App, address string, h http.Handler, name string) error {
	l, err := httpguard.Open(ctx, address)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "%s listens on http://%s\n", name, l.Addr())
	server := httpguard.Server(h, 0)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	select {
	case err = <-done:
	case <-ctx.Done():
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(server.Shutdown(stopping), <-done)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

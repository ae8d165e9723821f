// Package console is agentd console: the pages in which people look at runs, decide and steer them.
package console

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/config"
	"agentd/internal/console"
	"agentd/internal/console/live"
	"agentd/internal/httpguard"
	"agentd/internal/login"
	"agentd/internal/setup"
	"agentd/sdk"
)

type flags struct{ http, index, tokenFile, base string }

// Command is agentd console.
func Command(a *cli.App) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve the pages in which runs are seen, decided and steered, in a browser",
		Long: "console serves its pages on --http. On an address of this machine it lets everybody in who is on it; on any other, people\n" +
			"log in with the token of --token-file, and TLS has to be put in front. A proxy that serves other things, too, passes on what is\n" +
			"under --base-path, with that path.\n\n" +
			"With --index it keeps an index of runs in a file, which answers agentd runs list, too, and pages are fast however many runs\n" +
			"there are.\n\n" +
			"Everything that is done in it is published as the principal --as, which each page says; without it the console is\n" +
			"read-only. Where the configuration has an identity provider (console.oidc), people log in there, each as themselves, and\n" +
			"the NATS server enforces who decides (agentd nats-callout).",
		Example: "  agentd console --as anna\n  agentd console --as anna --index /var/lib/agentd\n  agentd console --http :8080 --token-file /run/secrets/console --as desk",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), a, f) },
	}
	cmd.Flags().StringVar(&f.http, "http", "127.0.0.1:8484", "address to listen on")
	cmd.Flags().StringVar(&f.index, "index", "", "file for the index of runs, or a folder for it (default: workers are asked for all their runs)")
	cmd.Flags().StringVar(&f.tokenFile, "token-file", "", "file with the token to log in with")
	cmd.Flags().StringVar(&f.base, "base-path", "", "path that everything is under, such as /agentd, where a proxy serves other things beside it")
	return cmd
}

func run(ctx context.Context, a *cli.App, f flags) error {
	cfg, err := a.Settings()
	if err != nil {
		return err
	}
	if cfg.Console.OIDC.Issuer != "" && (a.As != "" || f.tokenFile != "") {
		return cli.Usagef("people log in at %s, each as themselves: leave out --as and --token-file", cfg.Console.OIDC.Issuer)
	}
	var who setup.Principal
	if a.As != "" {
		if who, err = setup.FindApprover(cfg, a.As); err != nil {
			return cli.Usage(err)
		}
	}
	token := ""
	if f.tokenFile != "" {
		if token, err = setup.APIToken(cfg, f.tokenFile); err != nil {
			return err
		}
	}
	base, err := baseOf(f.base, cfg)
	if err != nil {
		return err
	}
	people, err := logins(a, cfg)
	if err != nil {
		return err
	}
	secret := token
	if people != nil {
		defer people.Provider.Close()
		secret = cfg.Console.OIDC.Issuer // nobody comes in without the provider's word
	}
	listener, err := httpguard.Listen(ctx, f.http, secret)
	if err != nil {
		return err
	}
	o := live.Options{Who: who, Index: f.index, Base: base, Token: token, Login: people}
	return errors.Join(serve(ctx, a, cfg, listener, o), ignoreClosed(listener.Close()))
}

// baseOf is the path of --base-path, which the address that people are led back to from their identity provider must have as well.
func baseOf(path string, cfg *config.Config) (string, error) {
	base, err := console.CheckBase(path)
	if err != nil || cfg.Console.OIDC.Issuer == "" {
		return base, err
	}
	address, err := url.Parse(cfg.Console.OIDC.URL)
	if err != nil || strings.TrimSuffix(address.Path, "/") != base {
		return "", sdk.Errorf(sdk.CodeConfig, "console.oidc.url is %q, and the console is under %q: people could not come back from where they log in; give both the same path (--base-path)", cfg.Console.OIDC.URL, base+"/")
	}
	return base, nil
}

// ignoreClosed is err, unless it says that the server closed the listener.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// keySize is that of the key that seals logins.
const keySize = 32

// logins are how people log in where the configuration has an identity provider; else nil.
func logins(a *cli.App, cfg *config.Config) (*live.Login, error) {
	o := cfg.Console.OIDC
	if o.Issuer == "" {
		return nil, nil
	}
	read := func(variable string) (string, error) {
		value := os.Getenv(variable)
		if variable != "" && value == "" {
			return "", sdk.Errorf(sdk.CodeConfig, "the environment variable %s, which console.oidc names, is not set", variable)
		}
		return value, nil
	}
	secret, err := read(o.SecretEnv)
	if err != nil {
		return nil, err
	}
	text, err := read(o.KeyEnv)
	if err != nil {
		return nil, err
	}
	people := &live.Login{Provider: login.New(o, secret), Connect: func(ctx context.Context, who, proof string) (*broker.Conn, error) {
		return a.ConnectFor(ctx, cfg, who, proof)
	}}
	if text != "" {
		if people.Key, err = base64.StdEncoding.DecodeString(text); err != nil || len(people.Key) != keySize {
			return nil, sdk.Errorf(sdk.CodeConfig, "%s has no key of %d bytes; make one with: agentd keys new", o.KeyEnv, keySize)
		}
	}
	return people, nil
}

func serve(ctx context.Context, a *cli.App, cfg *config.Config, l net.Listener, o live.Options) error {
	log, err := a.Logger(cfg)
	if err != nil {
		return err
	}
	c, err := a.Connect(ctx, cfg)
	if err != nil {
		return err
	}
	o.Conn, o.Config, o.Logger = c.Conn, func() *config.Config { return cfg }, log
	o.Connect = func(ctx context.Context) (*broker.Conn, error) {
		examining, err := a.Connect(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return examining.Conn, nil
	}
	opened, err := live.Open(ctx, o)
	if err != nil {
		return c.CloseAfter(err)
	}
	as := "nobody: read-only (name somebody with --as)"
	switch {
	case o.Login != nil:
		as = "whoever logs in at " + o.Login.Provider.Issuer()
	case o.Who.Who != "":
		as = o.Who.String()
	}
	fmt.Fprintf(a.Out, "console   http://%s%s/\nas        %s\nready\n", l.Addr(), o.Base, as)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- httpguard.Serve(serving, l, opened) }()
	select {
	case err = <-done:
	case err = <-opened.Failed():
		stop()
		err = errors.Join(err, <-done)
	}
	return c.CloseAfter(errors.Join(err, opened.Close()))
}

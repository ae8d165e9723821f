// Package live is a console on a broker: what it reads there, and how it is served.
package live

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"agentd/internal/broker"
	"agentd/internal/config"
	"agentd/internal/console"
	"agentd/internal/desk"
	"agentd/internal/setup"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/client"
)

// Source is what the console calls itself in events.
const Source = "agentd.console"

// Options are what a console on a broker is made of. All but Who, Index, Base, Token and Login are needed.
type Options struct {
	// Conn stays its caller's. Connect makes a further one, for the page of health.
	Conn    *broker.Conn
	Connect func(context.Context) (*broker.Conn, error)
	// Config is the configuration as it is now.
	Config func() *config.Config
	// Who acts; without a name the console is read-only.
	Who setup.Principal
	// Index is the file of the index of runs, or the folder that has it or gets it. Empty is none: workers are asked for all their runs.
	Index string
	// Base is the path that the console is under; empty is none.
	Base string
	// Token is what people log in with; empty lets everybody in.
	Token string
	// Login, unless nil, is how people log in, in place of Who and Token.
	Login  *Login
	Logger *slog.Logger
}

// Console is an open console.
type Console struct {
	http.Handler
	desk   *desk.Desk
	jobs   *jobs
	waking *waking
	store  worker.OpenedStore
	// stop ends what says which runs there are.
	stop func() error
}

// openTimeout bounds reading what is open.
const openTimeout = 10 * time.Second

// Open opens a console; the caller closes it.
func Open(ctx context.Context, o Options) (*Console, error) {
	cfg := o.Config()
	storing, err := setup.StoreOptions(cfg)
	if err != nil {
		return nil, err
	}
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	c := &Console{}
	if c.store, err = worker.OpenStore(opening, o.Conn, storing); err != nil {
		return nil, err
	}
	c.desk, err = desk.Open(opening, desk.Options{Conn: o.Conn, Domains: cfg.Approvals.Domains, Contracts: cfg.Contracts, Logger: o.Logger})
	if err != nil {
		return nil, errors.Join(err, c.store.Close())
	}
	var people console.Logins
	if o.Login != nil {
		if people, err = newLogins(*o.Login, o.Conn, c.desk, o.Logger); err != nil {
			c.desk.Close()
			return nil, errors.Join(err, c.store.Close())
		}
	}
	asking := client.New(o.Conn, client.Options{Source: Source, As: o.Who.Who})
	runs, lacking, stop, err := openIndex(opening, o, c.store, asking)
	if err != nil {
		c.desk.Close()
		return nil, errors.Join(err, c.store.Close())
	}
	c.stop, c.jobs = stop, newJobs(ctx, o.Conn, c.store, o.Logger)
	c.waking = newWaking(ctx, func(ctx context.Context, agent string) error {
		_, err := permitted(ctx, o.Conn, func(ctx context.Context) (int, error) { return o.Conn.WakePaused(ctx, agent) })
		return err
	}, o.Logger)
	c.Handler = console.Handler(console.Options{
		Source: &source{o.Conn, c.store, o.Config, o.Connect, c.waking}, Runs: asking, Index: runs, Lacking: lacking, Desk: c.desk, Jobs: c.jobs,
		Agents: func() []sdk.AgentSpec { return o.Config().Agents },
		Who:    o.Who.Who, As: o.Who.String(), Base: o.Base, Token: o.Token, Logins: people, Logger: o.Logger,
	})
	return c, nil
}

// Failed gets an error when what people are asked can no longer be read.
func (c *Console) Failed() <-chan error { return c.desk.Failed() }

// Close ends it. Requests must have ended before.
func (c *Console) Close() error {
	c.jobs.close()
	c.waking.close()
	err := c.stop()
	c.desk.Close()
	return errors.Join(err, c.store.Close())
}

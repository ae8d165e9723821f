package devserver

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"agentd/internal/broker"
	"agentd/internal/config"
	"agentd/internal/console/live"
	"agentd/internal/httpguard"
	"agentd/internal/retry"
	"agentd/internal/setup"
)

// DefaultConsole is the address of the console where nobody chose one.
const DefaultConsole = "127.0.0.1:4280"

// withConsole serves the console beside do.
func (d *Server) withConsole(ctx context.Context, cfg *config.Config, do func() error) error {
	if d.o.Console == "" {
		return do()
	}
	who, err := approver(cfg)
	if err != nil {
		return err
	}
	listener, err := httpguard.Listen(ctx, d.o.Console, "")
	if d.o.Console == DefaultConsole && errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(DefaultConsole) // it is constant
		listener, err = httpguard.Listen(ctx, net.JoinHostPort(host, "0"), "")
	}
	if err != nil {
		return err
	}
	o := live.Options{
		Conn: d.o.Conn, Config: d.current.Load, Who: who, Index: cfg.Data, Logger: d.o.Logger,
		Connect: func(ctx context.Context) (*broker.Conn, error) {
			return broker.Connect(ctx, broker.ConnectOptions{URL: d.o.URL, Name: live.Source, Subjects: setup.Subjects(cfg), Logger: d.o.Logger})
		},
	}
	var opened *live.Console
	if d.waiting == "" {
		if opened, err = live.Open(ctx, o); err != nil {
			return errors.Join(err, listener.Close())
		}
		d.o.Tell.Console(listener.Addr())
	}
	return d.beside(ctx, func(ctx context.Context) error {
		if opened == nil { // it reads through workers, of which there are none yet
			err := reopening.Do(ctx, retry.Sleep, func() (err error) {
				opened, err = live.Open(ctx, o)
				return err
			})
			if err != nil {
				return listener.Close()
			}
			d.o.Tell.Console(listener.Addr())
		}
		return errors.Join(httpguard.Serve(ctx, listener, opened), opened.Close())
	}, do)
}

// reopening are the pauses between attempts to open the console, until there is a worker.
var reopening = retry.Pauses{First: 250 * time.Millisecond, Longest: 5 * time.Second, Spread: 0.2}

package devserver

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/datafolder"
	"agentd/internal/config"
	"agentd/internal/console/live"
	"agentd/internal/httpguard"
	"agentd/internal/retry"
	"agentd/internal/setup"
)

// DefaultConsolePort is where the console is if nobody chose an address, the port is free, and the data folder keeps no other.
const DefaultConsolePort = 4280

// UsualConsoles are the addresses of a console for which nobody chose one: where it was before on the data folder, else the default, else
// any.
func UsualConsoles(data string) []string {
	ports := []int{DefaultConsolePort, 0}
	if kept := datafolder.Port(data, datafolder.ConsolePortFile); kept != 0 {
		ports = slices.Insert(ports, 0, kept)
	}
	addresses := make([]string, len(ports))
	for i, port := range ports {
		addresses[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	return addresses
}

// listen opens the first of the console's addresses that is free, and keeps its port.
func (d *Server) listen(ctx context.Context, data string) (listener net.Listener, err error) {
	for _, address := range d.o.Consoles {
		if listener, err = httpguard.Listen(ctx, address, ""); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if err := datafolder.KeepPort(data, datafolder.ConsolePortFile, listener.Addr()); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// withConsole serves the console beside do.
func (d *Server) withConsole(ctx context.Context, cfg *config.Config, do func() error) error {
	if len(d.o.Consoles) == 0 {
		return do()
	}
	who, err := approver(cfg)
	if err != nil {
		return err
	}
	listener, err := d.listen(ctx, cfg.Data)
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

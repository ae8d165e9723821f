package bench

import (
	"context"
	"errors"
	"fmt"
	"os"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/sdk/wire"
)

// Server is a NATS server of a measurement, in a folder that goes with it.
type Server struct {
	*embedded.Server
	folder string
}

// StartServer starts a server as o describes it, in a new folder in o.Dir, or in the system's folder for such if o.Dir is empty.
func StartServer(o embedded.Options) (*Server, error) {
	if o.Dir != "" {
		if err := os.MkdirAll(o.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("make the folder of the server: %w", err)
		}
	}
	folder, err := os.MkdirTemp(o.Dir, "agentd-bench-")
	if err != nil {
		return nil, fmt.Errorf("make the folder of the server: %w", err)
	}
	o.Dir = folder
	server, err := embedded.Start(o)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return &Server{server, folder}, nil
}

// Close stops the server and removes its folder.
func (s *Server) Close() error { return errors.Join(s.Server.Close(), os.RemoveAll(s.folder)) }

// Connect is Options.Connect to the server, under a root.
func (s *Server) Connect(subjects wire.Subjects) func(ctx context.Context, name string) (*broker.Conn, error) {
	return func(ctx context.Context, name string) (*broker.Conn, error) {
		return broker.Connect(ctx, broker.ConnectOptions{InProcess: s, Name: name, Subjects: subjects})
	}
}

package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"agentd/internal/broker/provision"
	"agentd/internal/index/ask"
)

// fileName is that of the index in a folder.
const fileName = "index.db"

// Start has the stream of documents made where it is not there yet, opens the index in a file, or in a folder, follows the stream, and answers other programs'
// questions. stop ends all of that.
func Start(ctx context.Context, path string, s Source) (x *Index, stop func() error, err error) {
	if err := provision.Index(ctx, s.Conn); err != nil {
		return nil, nil, err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, fileName)
	}
	x, err = Open(ctx, path, func() time.Time { return time.UnixMilli(s.Conn.Now()) })
	if err != nil {
		return nil, nil, err
	}
	silence, err := s.Conn.Serve(ask.Service(s.Conn, x))
	if err != nil {
		return nil, nil, errors.Join(err, x.Close())
	}
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.Follow(following, s)
	}()
	return x, func() error {
		cancel()
		<-done
		return errors.Join(silence(), x.Close())
	}, nil
}

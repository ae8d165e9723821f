package rebuild

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/leader"
	"agentd/sdk"
)

const (
	// chunkSize is how many bytes of a backup a message has; inFlight is how many of them are on their way at once.
	chunkSize = 128 << 10
	inFlight  = 64
	// silence is how long the server may send nothing of a backup, or not answer to a piece of one.
	silence = time.Minute
	// longestRestore is how long it may take to make a stream of the pieces that it has.
	longestRestore = time.Hour
	// dataFile is a stream as the server packs it. manifestFile is written when that is whole, and has what it is of.
	dataFile, manifestFile = "stream.backup", "stream.json"
)

// manifest is what a backup is of: the server's answer to the request for one.
type manifest struct {
	Config jetstream.StreamConfig `json:"config"`
	State  struct {
		LastSequence uint64 `json:"last_seq"`
		Messages     uint64 `json:"messages"`
	} `json:"state"`
}

// refused is the server's error in an answer of its API, nil if it has none.
func refused(answer []byte) error {
	var said struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(answer, &said); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	if said.Error != nil {
		return said.Error
	}
	return nil
}

// readManifest reads what the backup in dir is of. It returns nil when there is none, or only a part of one.
func readManifest(dir string) (*manifest, error) {
	body, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read backup: %w", err)
	}
	var m manifest
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, fmt.Errorf("read backup %s: %w", dir, err)
	}
	return &m, nil
}

// back writes a stream to dir, its consumers and their positions included, in place of what is there. It is on the disk when back returns.
func back(ctx context.Context, js jetstream.JetStream, stream, dir string) (*manifest, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("remove an older backup: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make room for a backup: %w", err)
	}
	data, err := os.OpenFile(filepath.Join(dir, dataFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make backup: %w", err)
	}
	answer, err := receive(ctx, js, stream, data)
	if err == nil {
		err = data.Sync()
	}
	if err = errors.Join(err, data.Close()); err != nil {
		return nil, fmt.Errorf("back up stream %s: %w", stream, err)
	}
	if err := keep(filepath.Join(dir, manifestFile), answer); err != nil {
		return nil, fmt.Errorf("back up stream %s: %w", stream, err)
	}
	return readManifest(dir)
}

// keep writes a file such that it is there whole or not at all.
func keep(name string, body []byte) error {
	part := name + ".part"
	file, err := os.OpenFile(part, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(body)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(part, name); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// receive has the server send a stream, and returns its answer, which says what it is of.
func receive(ctx context.Context, js jetstream.JetStream, stream string, to io.Writer) ([]byte, error) {
	nc := js.Conn()
	inbox := nc.NewRespInbox()
	pieces, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = pieces.Unsubscribe() }() // of a closed connection
	if err := pieces.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	request, err := json.Marshal(map[string]any{"deliver_subject": inbox, "jsck": true, "chunk_size": chunkSize, "window_size": inFlight * chunkSize})
	if err != nil {
		return nil, err
	}
	answer, err := ask(ctx, js, leader.API(js.Options(), "STREAM.SNAPSHOT."+stream), request, silence)
	if err != nil {
		return nil, err
	}
	for {
		piece, err := next(ctx, pieces)
		if err != nil {
			return nil, err
		}
		if len(piece.Data) == 0 {
			if status := piece.Header.Get("Status"); status != "" && status != "204" {
				return nil, sdk.Errorf(sdk.CodeUnavailable, "the server says: %s %s", status, piece.Header.Get("Description"))
			}
			return answer, nil
		}
		if _, err := to.Write(piece.Data); err != nil {
			return nil, err
		}
		if piece.Reply != "" { // the server waits for it after some
			if err := piece.Respond(nil); err != nil {
				return nil, err
			}
		}
	}
}

func next(ctx context.Context, pieces *nats.Subscription) (*nats.Msg, error) {
	waiting, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	return pieces.NextMsgWithContext(waiting)
}

// restore makes a stream of the backup in dir, with its messages under their sequences, its consumers, and another configuration.
func restore(ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig, dir string) error {
	err := send(ctx, js, config, filepath.Join(dir, dataFile))
	if err != nil {
		return fmt.Errorf("restore stream %s from %s: %w", config.Name, dir, err)
	}
	return nil
}

func send(ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig, from string) (err error) {
	data, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	request, err := json.Marshal(map[string]any{"config": config})
	if err != nil {
		return err
	}
	answer, err := ask(ctx, js, leader.API(js.Options(), "STREAM.RESTORE."+config.Name), request, silence)
	if err != nil {
		return err
	}
	var accepted struct {
		Subject string `json:"deliver_subject"`
	}
	if err := json.Unmarshal(answer, &accepted); err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	piece := make([]byte, min(chunkSize, js.Conn().MaxPayload()))
	for {
		n, err := data.Read(piece)
		if errors.Is(err, io.EOF) {
			_, err := ask(ctx, js, accepted.Subject, nil, longestRestore)
			return err
		}
		if err != nil {
			return err
		}
		if _, err := ask(ctx, js, accepted.Subject, piece[:n], silence); err != nil {
			return err
		}
	}
}

// ask makes a request, whose answer is empty or one of the API. It waits for who is to answer: a server tells others of its cluster what it
// takes, such as the pieces of a stream, and may be heard by them later than its answer is here.
func ask(ctx context.Context, js jetstream.JetStream, subject string, body []byte, patience time.Duration) ([]byte, error) {
	var reply *nats.Msg
	err := leader.PatientlyOnce(ctx, js, "server that answers on "+subject, func(ctx context.Context) (err error) {
		asking, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		reply, err = js.Conn().RequestWithContext(asking, subject, body)
		if err == nil && len(bytes.TrimSpace(reply.Data)) > 0 {
			err = refused(reply.Data)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return bytes.TrimSpace(reply.Data), nil
}

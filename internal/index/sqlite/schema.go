package sqlite

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"

	_ "modernc.org/sqlite" // the driver

	"agentd/sdk"
)

// version is that of the schema: a file of another one is made anew.
const version = 3

// connections bounds how many questions are answered at once; each has a cache of 16 MiB at most.
const connections = 4

// marks are what a run can have several of, or none: tags, and what it waits for. They have the run's changed, so that the newest runs with one
// are found without sorting all of them.
const schema = `
CREATE TABLE runs (
	id INTEGER PRIMARY KEY, token TEXT NOT NULL UNIQUE, rev INTEGER NOT NULL, run TEXT NOT NULL, agent TEXT NOT NULL, spec TEXT NOT NULL,
	status TEXT NOT NULL, reason TEXT NOT NULL, code TEXT NOT NULL, who TEXT NOT NULL, parent TEXT NOT NULL,
	started INTEGER NOT NULL, changed INTEGER NOT NULL, due INTEGER NOT NULL, deadline INTEGER NOT NULL,
	interactions INTEGER NOT NULL, tokens INTEGER NOT NULL, ended INTEGER NOT NULL, span INTEGER NOT NULL, document BLOB NOT NULL
) STRICT;
CREATE INDEX runs_changed ON runs (changed DESC, run);
CREATE INDEX runs_started ON runs (started DESC, run);
CREATE INDEX runs_tokens ON runs (tokens DESC, run);
CREATE INDEX runs_span ON runs (ended, span DESC, run);
CREATE INDEX runs_status ON runs (status, changed DESC, run);
CREATE INDEX runs_agent ON runs (agent, changed DESC, run);
CREATE INDEX runs_reason ON runs (reason, changed DESC, run);
CREATE INDEX runs_who ON runs (who, changed DESC, run);
CREATE INDEX runs_spec ON runs (spec, agent, status);
CREATE INDEX runs_run ON runs (run);
CREATE INDEX runs_parent ON runs (parent) WHERE parent <> '';
CREATE TABLE marks (
	key TEXT NOT NULL, value TEXT NOT NULL, changed INTEGER NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (key, value, changed DESC, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX marks_id ON marks (id);
CREATE VIRTUAL TABLE words USING fts5 (run, text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0');
CREATE TABLE place (stream INTEGER NOT NULL, sequence INTEGER NOT NULL, at INTEGER NOT NULL) STRICT;
INSERT INTO place VALUES (0, 0, 0);
PRAGMA user_version = 3;
`

// application marks the files of indexes, in SQLite's application_id: "agtd".
const application = 0x61677464

// checkOurs refuses a file that is not an index: whoever mistyped its name does not lose it.
func checkOurs(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the index of runs: %w", err)
	}
	header := make([]byte, 72) // SQLite's name is at its beginning, and application_id at its end
	n, err := io.ReadFull(file, header)
	if err := errors.Join(file.Close(), err); n > 0 && (err != nil || string(header[:16]) != "SQLite format 3\x00" || binary.BigEndian.Uint32(header[68:]) != application) {
		return sdk.Errorf(sdk.CodeConfig, "%s is not an index of runs; name a file that does not exist yet, or delete it", path)
	}
	return nil
}

// open opens the file. An index that cannot be used is made anew: all that is in it is on the broker.
func open(ctx context.Context, path string) (*sql.DB, error) {
	if err := checkOurs(path); err != nil {
		return nil, err
	}
	if err := keepFromOthers(path); err != nil {
		return nil, fmt.Errorf("keep the index of runs from others: %w", err)
	}
	db, err := connect(path, "journal_mode(WAL)")
	if err != nil {
		return nil, err
	}
	have := 0
	if err = db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err == nil && have == version {
		return db, nil
	}
	if err := errors.Join(ctx.Err(), db.Close()); err != nil {
		return nil, err
	}
	if err := remove(path); err != nil {
		return nil, fmt.Errorf("make the index of runs anew: %w", err)
	}
	if err := mark(ctx, path); err != nil {
		return nil, err
	}
	if db, err = connect(path, "journal_mode(WAL)"); err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("make the index of runs at %s: %w", path, err), db.Close())
	}
	return db, nil
}

// private is the mode of the file: what runs say is for whoever may see all of them. SQLite gives the files beside it the mode of this one.
const private = 0o600

// keepFromOthers lets nobody else read the files. Those of another user, as on a volume that several have used, are deleted where only their
// owner may change that: whoever makes them anew is their owner.
func keepFromOthers(path string) error {
	err := eachFile(path, func(name string) error {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm()&^private == 0 {
			return err
		}
		return os.Chmod(name, private)
	})
	if errors.Is(err, os.ErrPermission) {
		return remove(path)
	}
	return err
}

// mark makes the file, with its mark where checkOurs finds it: in the file and not in the log beside it.
func mark(ctx context.Context, path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, private)
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		return fmt.Errorf("make the index of runs: %w", err)
	}
	db, err := connect(path, "journal_mode(DELETE)")
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d", application))
	if err := errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("make the index of runs at %s: %w", path, err)
	}
	return nil
}

// connect connects to a file that there is: a connection that made one in the place of a file that somebody deleted would hide that.
func connect(path, journal string) (*sql.DB, error) {
	options := url.Values{"mode": {"rw"}, "_txlock": {"immediate"}, "_pragma": {journal, "synchronous(NORMAL)", "busy_timeout(10000)", "cache_size(-16384)"}}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: url.PathEscape(path), RawQuery: options.Encode()}).String())
	if err != nil {
		return nil, fmt.Errorf("open the index of runs at %s: %w", path, err)
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// eachFile does something with the file and with those beside it, as far as they are there.
func eachFile(path string, do func(name string) error) error {
	var faults []error
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := do(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// remove deletes the file with those beside it.
func remove(path string) error { return eachFile(path, os.Remove) }

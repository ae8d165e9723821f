package worker

import (
	"context"
	"errors"

	"agentd/internal/broker"
	"agentd/internal/runner"
	"agentd/internal/state/natsstore"
	"agentd/internal/state/redisstore"
	"agentd/sdk"
)

// OpenedStore is a store of runs with what was found out about it.
type OpenedStore struct {
	runner.Store
	// Warnings say in what the store falls short.
	Warnings []broker.Finding
	close    func() error
}

// Close releases what OpenStore opened.
func (s OpenedStore) Close() error {
	if s.close == nil {
		return nil
	}
	return s.close()
}

// OpenStore opens the store of runs at redisURL or, without one, in the connection's JetStream. A Redis that may lose
// runs is refused.
func OpenStore(ctx context.Context, conn *broker.Conn, redisURL string) (OpenedStore, error) {
	if redisURL == "" {
		stream := broker.StreamName(conn.Subjects(), broker.ZoneRun)
		return OpenedStore{Store: natsstore.New(conn.JetStream(), stream, conn.Subjects())}, nil
	}
	store, findings, err := redisstore.Open(ctx, redisURL, redisstore.Options{Root: conn.Subjects().Root()})
	if err != nil {
		return OpenedStore{}, err
	}
	return OpenedStore{Store: store, Warnings: findingsOf(findings), close: store.Close}, nil
}

// CheckStore reports what is wrong with the store, without refusing one that may lose runs.
func CheckStore(ctx context.Context, conn *broker.Conn, redisURL string) []broker.Finding {
	store := OpenedStore{}
	var err error
	if redisURL == "" {
		store, err = OpenStore(ctx, conn, "")
	} else {
		var lossy *redisstore.Store
		var findings []redisstore.Finding
		lossy, findings, err = redisstore.Open(ctx, redisURL, redisstore.Options{Root: conn.Subjects().Root(), AllowLossy: true})
		if err == nil {
			store = OpenedStore{Store: lossy, Warnings: findingsOf(findings), close: lossy.Close}
		}
	}
	if err == nil {
		_, _, err = store.Runs(ctx, "", 1)
		err = errors.Join(err, store.Close())
	}
	if err == nil {
		return store.Warnings
	}
	return append(store.Warnings, broker.Finding{
		Code: "store", Severity: broker.SeverityError, Message: "the store of runs cannot be used: " + storeProblem(err),
		Remedy: "start it, correct REDIS_URL, or run: agentd provision",
	})
}

func storeProblem(err error) string {
	if e, ok := errors.AsType[*sdk.Error](err); ok && e.Cause == nil {
		return e.Message
	}
	return err.Error()
}

// findingsOf are findings about Redis in the form of those about the broker. What makes a store refuse to open is an error
// even where it was allowed.
func findingsOf(findings []redisstore.Finding) []broker.Finding {
	var all []broker.Finding
	for _, f := range findings {
		severity := broker.Severity(f.Severity)
		if f.Code == redisstore.FindingNoAOF || f.Code == redisstore.FindingLazyAOF {
			severity = broker.SeverityError
		}
		all = append(all, broker.Finding{
			Code: string(f.Code), Severity: severity, Message: f.Server + ": " + f.Message, Remedy: f.Remedy,
		})
	}
	return all
}

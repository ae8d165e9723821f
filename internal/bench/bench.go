package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/borrow"
	"agentd/internal/state/redisstore"
)

// tidying is how long the removal of what a measurement has made may take.
const tidying = time.Minute

// Measure takes the root of the connections for itself, opens a System, loads it, and removes all that it has made, also when it fails or
// ctx ends. A root that anybody uses is left alone: sdk.CodeConfig. With ctx ended there is no report.
func Measure(ctx context.Context, o Options, l Load) (r Report, err error) {
	p, err := open(ctx, o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	by := fmt.Sprintf("a bench, process %d", os.Getpid())
	if host, err := os.Hostname(); err == nil {
		by += " of " + host
	}
	if err := p.conn.Permitted(ctx, func(ctx context.Context) error { return borrow.Take(ctx, p.conn, by) }); err != nil {
		return r, err
	}
	defer func() {
		err = errors.Join(err, tidy(ctx, func(ctx context.Context) error { return borrow.GiveBack(ctx, p.conn) }))
	}()
	if p.redis != nil {
		if err := p.redis.Borrow(ctx, by); err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, tidy(ctx, p.redis.GiveBack)) }()
	}
	s, err := Open(ctx, o)
	if err == nil {
		r, err = s.measure(ctx, l, p.redis)
	}
	return r, errors.Join(err, s.Close(), s.failed)
}

// tidy removes what was made, whatever became of ctx.
func tidy(ctx context.Context, giveBack func(context.Context) error) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), tidying)
	defer stop()
	return giveBack(ctx)
}

// Remove removes what a measurement on this root left that was killed. A root that no measurement has taken is left alone:
// sdk.CodeConfig.
func Remove(ctx context.Context, o Options) (err error) {
	p, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	return p.conn.Permitted(ctx, func(ctx context.Context) error {
		cleared := false
		if p.redis != nil {
			by, err := p.redis.Borrowed(ctx)
			if err != nil {
				return err
			}
			if cleared = by != ""; cleared {
				if err := p.redis.GiveBack(ctx); err != nil {
					return err
				}
			}
		}
		if by, err := borrow.By(ctx, p.conn); cleared && err == nil && by == nil {
			return nil
		}
		return borrow.GiveBack(ctx, p.conn)
	})
}

// place is where a measurement is made: what it does there, nobody counts.
type place struct {
	conn *broker.Conn
	// redis is nil where JetStream is the store.
	redis *redisstore.Store
}

func open(ctx context.Context, o Options) (p place, err error) {
	if p.conn, err = o.Connect(ctx, "bench"); err != nil {
		return p, err
	}
	if o.Store.RedisURL != "" {
		p.redis, _, err = redisstore.Open(ctx, o.Store.RedisURL, redisstore.Options{Root: p.conn.Subjects().Root(), TLS: o.Store.RedisTLS})
	}
	if err != nil {
		return p, errors.Join(err, p.conn.Close())
	}
	return p, nil
}

func (p place) close() error {
	var err error
	if p.redis != nil {
		err = p.redis.Close()
	}
	return errors.Join(err, p.conn.Close())
}

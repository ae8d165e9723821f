package broker

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"agentd/internal/address"
)

// dialWithin bounds the look at one URL.
const dialWithin = 2 * time.Second

// Away are those of a comma-separated list of URLs, without who one is, where nobody listens.
func Away(ctx context.Context, urls string) []string {
	list := address.Servers(urls)
	away := make([]string, len(list))
	var looking sync.WaitGroup
	for i, text := range list {
		looking.Go(func() {
			if !listens(ctx, text) {
				away[i] = address.Hide(text)
			}
		})
	}
	looking.Wait()
	return slices.DeleteFunc(away, func(url string) bool { return url == "" })
}

func listens(ctx context.Context, text string) bool {
	url, err := address.Parse(text)
	if err != nil {
		return true // connecting has said what is wrong with it
	}
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(url.Hostname(), cmp.Or(url.Port(), "4222")))
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was said
	return true
}

// tellAway says which servers of a list are away, of which this connection needs one only.
func (c *Conn) tellAway(urls string) {
	if !strings.Contains(urls, ",") {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.looking.Go(func() {
		defer cancel()
		for _, url := range Away(ctx, urls) {
			c.log.Warn("a NATS server of the list cannot be reached; others are used", "url", url)
		}
	})
	go func() {
		select {
		case <-c.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
}

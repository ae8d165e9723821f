package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"agentd/test/ports"
	"agentd/test/proxy"
)

// Cluster is some servers that know each other. The caller closes it.
type Cluster struct {
	Nodes   []*Node
	proxies []*proxy.Proxy
}

// servers is how many a cluster has: any one may be lost.
const servers = 3

// Start starts a cluster with its data and logs under dir, and returns when it takes streams.
func Start(ctx context.Context, dir string) (_ *Cluster, err error) {
	c := &Cluster{}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	var routes [servers]int
	for i := range servers {
		if err := c.add(ctx, dir, i, &routes[i]); err != nil {
			return nil, err
		}
	}
	for i, n := range c.Nodes {
		if err := c.configure(ctx, i, n, routes); err != nil {
			return nil, err
		}
	}
	for _, n := range c.Nodes {
		if err := n.Begin(); err != nil {
			return nil, err
		}
	}
	return c, c.Ready(ctx)
}

// add adds a server that was not configured yet. It sets route to the port where the others reach it.
func (c *Cluster) add(ctx context.Context, dir string, i int, route *int) error {
	n := &Node{Name: "n" + strconv.Itoa(i+1)}
	n.dir = filepath.Join(dir, n.Name)
	n.config = filepath.Join(n.dir, "nats.conf")
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	var found [3]int
	for k := range found {
		port, err := ports.Find(ctx)
		if err != nil {
			return err
		}
		found[k] = port
	}
	n.direct, n.Monitor, *route = address(found[0]), "http://"+address(found[1]), found[2]
	var err error
	if n.log, err = os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	c.Nodes = append(c.Nodes, n)
	n.client, err = c.proxy(ctx, n.direct)
	return err
}

func (c *Cluster) proxy(ctx context.Context, target string) (*proxy.Proxy, error) {
	p, err := proxy.New(ctx, target)
	if err == nil {
		c.proxies = append(c.proxies, p)
	}
	return p, err
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// nowhere is what servers tell others of where they are: the others reach them by the routes of their configuration alone, which
// can be cut.
const nowhere = "127.0.0.1:1"

func (c *Cluster) configure(ctx context.Context, i int, n *Node, routes [servers]int) error {
	var others []string
	for k, other := range c.Nodes {
		if k == i {
			continue
		}
		route, err := c.proxy(ctx, address(routes[k]))
		if err != nil {
			return err
		}
		n.routes, other.routes = append(n.routes, route), append(other.routes, route)
		others = append(others, strconv.Quote("nats-route://"+route.Address()))
	}
	text := fmt.Sprintf(`server_name: %s
logtime: true
listen: %q
client_advertise: %q
http: %q
jetstream { store_dir: %q, sync_interval: always, max_mem: 64M, max_file: 1G }
cluster { name: agentd, listen: %q, cluster_advertise: %q, routes: [%s], ping_interval: "2s", ping_max: 2 }
`, n.Name, n.direct, n.client.Address(), strings.TrimPrefix(n.Monitor, "http://"), filepath.Join(n.dir, "data"), address(routes[i]), nowhere,
		strings.Join(others, ", "))
	return os.WriteFile(n.config, []byte(text), 0o600)
}

// Ready waits until all servers have all that the cluster has.
func (c *Cluster) Ready(ctx context.Context) error {
	for _, n := range c.Nodes {
		if err := n.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// URL is the list of where clients reach the servers, beginning with one of them.
func (c *Cluster) URL(first int) string {
	var urls []string
	for i := range c.Nodes {
		urls = append(urls, c.Nodes[(first+i)%len(c.Nodes)].URL())
	}
	return strings.Join(urls, ",")
}

// Direct is the list of where who is not hurt with the clients reaches the servers.
func (c *Cluster) Direct() string {
	var urls []string
	for _, n := range c.Nodes {
		urls = append(urls, n.Direct())
	}
	return strings.Join(urls, ",")
}

// Node is the server with a name.
func (c *Cluster) Node(name string) (*Node, error) {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("no server is called %q", name)
}

// Meta is the server that leads the cluster's JetStream, as the first one says that answers.
func (c *Cluster) Meta(ctx context.Context) (*Node, error) {
	var errs []error
	for _, n := range c.Nodes {
		name, err := n.meta(ctx)
		if err == nil && name != "" {
			return c.Node(name)
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (n *Node) meta(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.Monitor+"/jsz", nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	var jsz struct {
		Meta struct {
			Leader string `json:"leader"`
		} `json:"meta_cluster"`
	}
	err = json.NewDecoder(response.Body).Decode(&jsz)
	return jsz.Meta.Leader, errors.Join(err, response.Body.Close())
}

// Close ends all servers, whatever state they are in.
func (c *Cluster) Close() {
	for _, n := range c.Nodes {
		if n.process != nil {
			n.Kill()
		}
		if n.log != nil {
			_ = n.log.Close() // nothing is written to it any more
		}
	}
	for _, p := range c.proxies {
		p.Close()
	}
}

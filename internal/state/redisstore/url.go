package redisstore

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"agentd/sdk"
)

// Default ports of servers and of sentinels.
const (
	serverPort   = "6379"
	sentinelPort = "26379"
)

// The schemes of go-redis.
const (
	schemePlain = "redis"
	schemeTLS   = "rediss"
)

// address is what a URL says.
type address struct {
	// options are those of one server; a cluster and a sentinel take most from it.
	options *redis.Options
	// hosts are the nodes of a cluster, or the sentinels.
	hosts []string
	// master is the name of the master that sentinels watch; empty without sentinels.
	master                         string
	sentinelUser, sentinelPassword string
}

// parseURL understands redis://, rediss:// (TLS), unix:// and redis+sentinel:// or rediss+sentinel:// URLs. No error
// shows the URL: it may hold a password.
func parseURL(raw string) (*address, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return nil, configError("it has no scheme; want redis://, rediss://, unix:// or redis+sentinel://")
	}
	if scheme == "unix" {
		return single(raw)
	}
	base, sentinel := strings.CutSuffix(scheme, "+sentinel")
	if base != schemePlain && base != schemeTLS {
		return nil, configError(fmt.Sprintf("unknown scheme %q; want redis://, rediss://, unix:// or redis+sentinel://", scheme))
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	user := ""
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, authority = authority[:i+1], authority[i+1:]
	}
	port := serverPort
	if sentinel {
		port = sentinelPort
	}
	var hosts []string
	for host := range strings.SplitSeq(authority, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		hosts = append(hosts, host)
	}
	if sentinel {
		return sentinels(base+"://"+user+hosts[0], tail, hosts)
	}
	a, err := single(base + "://" + user + hosts[0] + tail)
	if err != nil || len(hosts) == 1 {
		return a, err
	}
	if a.options.DB != 0 {
		return nil, configError("a cluster has only database 0")
	}
	a.hosts = hosts
	return a, nil
}

func single(raw string) (*address, error) {
	o, err := redis.ParseURL(raw)
	if err != nil {
		return nil, urlError(err)
	}
	return &address{options: o}, nil
}

// sentinels reads redis+sentinel://user:password@host,host/master?db=0&sentinel_username=&sentinel_password=: the user is
// the one of the master.
func sentinels(server, tail string, hosts []string) (*address, error) {
	u, err := url.Parse(server + tail)
	if err != nil {
		return nil, urlError(err)
	}
	master, q := strings.Trim(u.Path, "/"), u.Query()
	if master == "" || strings.Contains(master, "/") {
		return nil, configError("want redis+sentinel://host:port,host:port/master")
	}
	a := &address{sentinelUser: q.Get("sentinel_username"), sentinelPassword: q.Get("sentinel_password")}
	q.Del("sentinel_username")
	q.Del("sentinel_password")
	u.Path, u.RawQuery = "", q.Encode()
	if a.options, err = redis.ParseURL(u.String()); err != nil {
		return nil, urlError(err)
	}
	a.master, a.hosts = master, hosts
	return a, nil
}

func configError(message string) error { return sdk.Errorf(sdk.CodeConfig, "Redis URL: %s", message) }

// urlError leaves out the URL that net/url puts into its errors.
func urlError(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return configError(strings.TrimPrefix(err.Error(), "redis: "))
}

// client returns a client with the settings that the store relies on. It does not connect yet.
func (a *address) client(o Options) redis.UniversalClient {
	s := a.options
	s.ContextTimeoutEnabled = true
	s.MaxRetries, s.DialerRetries = 1, 1 // who calls the store repeats, with pauses
	s.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if s.Protocol == 0 {
		s.Protocol = 2 // with 3 the client looks for notifications before each command and each reply
	}
	if s.ReadTimeout == 0 {
		s.ReadTimeout = 5*time.Second + 2*o.ReplicaTimeout // answers to WAIT and WAITAOF take as long as that
	}
	if len(a.hosts) == 0 {
		return redis.NewClient(s)
	}
	if s.TLSConfig != nil {
		s.TLSConfig = s.TLSConfig.Clone()
		s.TLSConfig.ServerName = "" // each node has its own
	}
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: a.hosts, IsClusterMode: a.master == "", MasterName: a.master,
		SentinelUsername: a.sentinelUser, SentinelPassword: a.sentinelPassword,
		ClientName: s.ClientName, DB: s.DB, Username: s.Username, Password: s.Password, Protocol: s.Protocol,
		TLSConfig: s.TLSConfig, MaxRetries: s.MaxRetries, DialerRetries: s.DialerRetries, ContextTimeoutEnabled: s.ContextTimeoutEnabled,
		DialTimeout: s.DialTimeout, ReadTimeout: s.ReadTimeout, WriteTimeout: s.WriteTimeout,
		PoolSize: s.PoolSize, PoolTimeout: s.PoolTimeout, MinIdleConns: s.MinIdleConns, MaxIdleConns: s.MaxIdleConns,
		MaxActiveConns: s.MaxActiveConns, ConnMaxIdleTime: s.ConnMaxIdleTime, ConnMaxLifetime: s.ConnMaxLifetime,
		MaintNotificationsConfig: s.MaintNotificationsConfig,
	})
}

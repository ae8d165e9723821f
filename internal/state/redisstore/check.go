package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"agentd/internal/finding"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// The codes of findings.
const (
	FindingUnreachable = "redis_unreachable"
	FindingEviction    = "redis_eviction"
	FindingNoAOF       = "redis_no_append_only_file"
	FindingLazyAOF     = "redis_append_only_file_lazy"
	FindingUnchecked   = "redis_config_unchecked"
	FindingCluster     = "redis_is_cluster"
	FindingReplica     = "redis_is_replica"
	FindingFull        = "redis_full"
	FindingFewReplicas = "redis_few_replicas"
)

// unnamed stands for a server whose address is not known.
const unnamed = "redis"

// passes says that a finding keeps no store from being opened: runs wait, and go on when it has passed.
func passes(code string) bool { return code == FindingFull || code == FindingFewReplicas }

// lossy findings are allowed by Options.AllowLossy.
func lossy(code string) bool { return code == FindingNoAOF || code == FindingLazyAOF }

// Check reports what is wrong with the settings of the server, or of each master of a cluster, which so many replicas must
// follow.
func Check(ctx context.Context, client redis.UniversalClient, replicas int) []finding.Finding {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		name := unnamed
		if c, ok := client.(*redis.Client); ok {
			name = c.Options().Addr
		}
		return examined{name: name, replicas: replicas}.check(ctx, client)
	}
	var mu sync.Mutex
	var findings []finding.Finding
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		found := examined{name: master.Options().Addr, replicas: replicas, cluster: true}.check(ctx, master)
		mu.Lock()
		defer mu.Unlock()
		findings = append(findings, found...)
		return nil
	})
	if err != nil {
		findings = append(findings, unreachable("cluster", err))
	}
	slices.SortFunc(findings, func(a, b finding.Finding) int {
		return strings.Compare(a.Server+a.Code, b.Server+b.Code)
	})
	return findings
}

func unreachable(server string, err error) finding.Finding {
	return finding.Error(FindingUnreachable, fmt.Sprintf("the server does not answer: %v", err),
		"check the address, user, password and TLS of the Redis URL, and that the server runs").On(server)
}

// examined is a server that so many replicas must follow. cluster says that it was found as one of a cluster.
type examined struct {
	name     string
	replicas int
	cluster  bool
}

func (e examined) check(ctx context.Context, c redis.Cmdable) []finding.Finding {
	if err := c.Ping(ctx).Err(); err != nil {
		return []finding.Finding{unreachable(e.name, err)}
	}
	findings := e.role(ctx, c)
	settings := map[string]string{}
	for _, name := range []string{"maxmemory-policy", "appendonly", "appendfsync"} {
		values, err := c.ConfigGet(ctx, name).Result()
		if err == nil && values[name] == "" {
			err = errors.New("it is not shown")
		}
		if err != nil {
			findings = append(findings, finding.Warning(FindingUnchecked, fmt.Sprintf("the setting %s could not be checked: %v", name, err),
				"make sure that the service has maxmemory-policy noeviction, appendonly yes and appendfsync always").On(e.name))
			continue
		}
		settings[name] = values[name]
	}
	return append(findings, judge(e.name, settings)...)
}

// judge looks at settings; an unknown one is empty.
func judge(server string, settings map[string]string) []finding.Finding {
	var findings []finding.Finding
	if policy := settings["maxmemory-policy"]; policy != "" && policy != "noeviction" {
		findings = append(findings, finding.Error(FindingEviction,
			fmt.Sprintf("maxmemory-policy is %s: the server deletes runs when its memory is full", policy),
			"set maxmemory-policy noeviction").On(server))
	}
	switch fsync := settings["appendfsync"]; {
	case settings["appendonly"] == "no":
		findings = append(findings, finding.Error(FindingNoAOF, "appendonly is off: a crash of the server loses runs",
			"set appendonly yes and appendfsync always").On(server))
	case fsync != "" && fsync != "always":
		findings = append(findings, finding.Error(FindingLazyAOF,
			fmt.Sprintf("appendfsync is %s: a crash of the machine loses what was confirmed in the seconds before", fsync),
			"set appendfsync always").On(server))
	}
	return findings
}

// role finds out whether the URL fits the kind of server. Who may not ask gets a clear error at the first write.
func (e examined) role(ctx context.Context, c redis.Cmdable) []finding.Finding {
	info, err := c.Info(ctx).Result()
	if err != nil {
		return []finding.Finding{finding.Warning(FindingUnchecked, fmt.Sprintf("the role of the server could not be checked: %v", err),
			"make sure that the URL names a master, or all nodes of a cluster").On(e.name)}
	}
	var findings []finding.Finding
	if !e.cluster && strings.Contains(info, "cluster_enabled:1") {
		findings = append(findings, finding.Error(FindingCluster, "the server is a node of a cluster",
			"name at least two of its nodes: redis://host:port,host:port").On(e.name))
	}
	if strings.Contains(info, "role:slave") {
		findings = append(findings, finding.Error(FindingReplica, "the server is a replica, which takes no writes",
			"name the master, or its sentinels: redis+sentinel://host:port,host:port/master").On(e.name))
	}
	return slices.Concat(findings, fewReplicas(e.name, info, e.replicas), full(e.name, info))
}

// almostFull is what part of its memory a server may have left to be called full: what is used goes up and down.
const almostFull = 50

// full finds out from what the server tells of itself whether it refuses writes.
func full(server, info string) []finding.Finding {
	value := func(name string) string {
		_, rest, _ := strings.Cut(info, "\n"+name+":")
		line, _, _ := strings.Cut(rest, "\n")
		return strings.TrimSpace(line)
	}
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(value(name), 10, 64) // one that is not told does not limit
		return n
	}
	var findings []finding.Finding
	if used, most := number("used_memory")-number("mem_not_counted_for_evict"), number("maxmemory"); most > 0 && used >= most-most/almostFull {
		findings = append(findings, finding.Error(FindingFull,
			fmt.Sprintf("its memory is full: %d of %d bytes (maxmemory) are used, beyond which it refuses writes", used, most),
			"raise maxmemory, or shorten retention.history; runs go on by themselves when there is room").On(server))
	}
	if value("aof_last_write_status") == "err" {
		findings = append(findings, finding.Error(FindingFull, "it cannot write its append-only file, and refuses writes",
			"make room on its disk; runs go on by themselves when there is").On(server))
	}
	return findings
}

// Writable implements state.Store. Settings may have become others since the store was opened: another server may have taken over.
func (s *Store) Writable(ctx context.Context) error {
	var faults []error
	for _, f := range Check(ctx, s.client, 0) { // replicas are asked, and not counted
		if f.Severity == finding.SeverityError && (!lossy(f.Code) || !s.o.AllowLossy) {
			faults = append(faults, sdk.Errorf(sdk.CodeUnavailable, "Redis %s: %s; %s", f.Server, f.Message, f.Remedy))
		}
	}
	if len(faults) == 0 {
		faults = append(faults, s.replicasConfirm(ctx))
	}
	return errors.Join(faults...)
}

// Open connects to the server or servers that rawURL names and checks their settings:
//
//	redis://user:password@host:port/db          rediss:// is the same over TLS, unix:///path?db= a socket
//	redis://host:port,host:port                 nodes of a cluster
//	redis+sentinel://host:port,host:port/master?db=&sentinel_username=&sentinel_password=
//
// It refuses, with all reasons in one *sdk.Error of CodeConfig, a server that may lose runs: see Options.AllowLossy for
// crashes; eviction is never allowed. A server that does not answer is CodeUnavailable. The findings are warnings, and with an error what led to it.
func Open(ctx context.Context, rawURL string, o Options) (*Store, []finding.Finding, error) {
	quiet()
	s := New(nil, o)
	a, err := parseURL(rawURL)
	if err == nil {
		err = a.secure(o.TLS)
	}
	_, rootErr := wire.NewSubjects(s.o.Root) // braces in the root would move keys to other slots
	if err := errors.Join(err, rootErr); err != nil {
		return nil, nil, err
	}
	s.client = a.client(s.o)
	s.count()
	findings := Check(ctx, s.client, o.Replicas)
	var refusals []string
	code := sdk.CodeConfig
	for _, f := range findings {
		if f.Severity == finding.SeverityError && !passes(f.Code) && (!lossy(f.Code) || !o.AllowLossy) {
			refusals = append(refusals, fmt.Sprintf("%s (%s): %s", f.Text(), f.Code, f.Remedy))
		}
		if f.Code == FindingUnreachable {
			code = sdk.CodeUnavailable
		}
	}
	if len(refusals) > 0 {
		refusal := sdk.Errorf(code, "Redis cannot keep runs: %s", strings.Join(refusals, "; "))
		refusal.Retryable = code == sdk.CodeUnavailable
		return nil, findings, errors.Join(refusal, s.Close())
	}
	return s, s.lookUpWaitAOF(ctx, findings), nil
}

// quiet moves what go-redis logs for the whole process, on standard error, to slog's details: the errors that the store
// returns say the same.
var quiet = sync.OnceFunc(func() { redis.SetLogger(detail{}) })

type detail struct{}

// Printf implements the logger of go-redis.
func (detail) Printf(ctx context.Context, format string, v ...any) {
	slog.DebugContext(ctx, "redis client", "message", fmt.Sprintf(format, v...))
}

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

	"agentd/sdk/wire"

	"github.com/redis/go-redis/v9"

	"agentd/sdk"
)

// Severity of a finding.
type Severity string

// With an error the store does not open; a warning is for the log.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Finding is something about the server that an operator should know.
type Finding struct {
	Code     FindingCode `json:"code"`
	Severity Severity    `json:"severity"`
	// Server is its address.
	Server  string `json:"server"`
	Message string `json:"message"`
	// Remedy is what to do about it.
	Remedy string `json:"remedy"`
}

func (f Finding) String() string {
	return fmt.Sprintf("%s: %s (%s): %s", f.Server, f.Message, f.Code, f.Remedy)
}

// FindingCode names a kind of finding.
type FindingCode string

// The findings.
const (
	FindingUnreachable FindingCode = "redis_unreachable"
	FindingEviction    FindingCode = "redis_eviction"
	FindingNoAOF       FindingCode = "redis_no_append_only_file"
	FindingLazyAOF     FindingCode = "redis_append_only_file_lazy"
	FindingUnchecked   FindingCode = "redis_config_unchecked"
	FindingCluster     FindingCode = "redis_is_cluster"
	FindingReplica     FindingCode = "redis_is_replica"
	FindingFull        FindingCode = "redis_full"
	FindingFewReplicas FindingCode = "redis_few_replicas"
)

// unnamed stands for a server whose address is not known.
const unnamed = "redis"

// passes says that a finding keeps no store from being opened: runs wait, and go on when it has passed.
func (c FindingCode) passes() bool { return c == FindingFull || c == FindingFewReplicas }

// lossy findings are allowed by Options.AllowLossy.
func (c FindingCode) lossy() bool { return c == FindingNoAOF || c == FindingLazyAOF }

// Check reports what is wrong with the settings of the server, or of each master of a cluster, which so many replicas must
// follow.
func Check(ctx context.Context, client redis.UniversalClient, replicas int) []Finding {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		name := unnamed
		if c, ok := client.(*redis.Client); ok {
			name = c.Options().Addr
		}
		return checkServer(ctx, client, name, false, replicas)
	}
	var mu sync.Mutex
	var findings []Finding
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		found := checkServer(ctx, master, master.Options().Addr, true, replicas)
		mu.Lock()
		defer mu.Unlock()
		findings = append(findings, found...)
		return nil
	})
	if err != nil {
		findings = append(findings, unreachable("cluster", err))
	}
	slices.SortFunc(findings, func(a, b Finding) int {
		return strings.Compare(a.Server+string(a.Code), b.Server+string(b.Code))
	})
	return findings
}

func unreachable(server string, err error) Finding {
	return Finding{
		FindingUnreachable, SeverityError, server, fmt.Sprintf("the server does not answer: %v", err),
		"check the address, user, password and TLS of the Redis URL, and that the server runs",
	}
}

func checkServer(ctx context.Context, c redis.Cmdable, server string, cluster bool, replicas int) []Finding {
	if err := c.Ping(ctx).Err(); err != nil {
		return []Finding{unreachable(server, err)}
	}
	findings := checkRole(ctx, c, server, cluster, replicas)
	settings := map[string]string{}
	for _, name := range []string{"maxmemory-policy", "appendonly", "appendfsync"} {
		values, err := c.ConfigGet(ctx, name).Result()
		if err == nil && values[name] == "" {
			err = errors.New("it is not shown")
		}
		if err != nil {
			findings = append(findings, Finding{
				FindingUnchecked, SeverityWarning, server, fmt.Sprintf("the setting %s could not be checked: %v", name, err),
				"make sure that the service has maxmemory-policy noeviction, appendonly yes and appendfsync always",
			})
			continue
		}
		settings[name] = values[name]
	}
	return append(findings, judge(server, settings)...)
}

// judge looks at settings; an unknown one is empty.
func judge(server string, settings map[string]string) []Finding {
	var findings []Finding
	if policy := settings["maxmemory-policy"]; policy != "" && policy != "noeviction" {
		findings = append(findings, Finding{
			FindingEviction, SeverityError, server,
			fmt.Sprintf("maxmemory-policy is %s: the server deletes runs when its memory is full", policy),
			"set maxmemory-policy noeviction",
		})
	}
	switch fsync := settings["appendfsync"]; {
	case settings["appendonly"] == "no":
		findings = append(findings, Finding{
			FindingNoAOF, SeverityError, server, "appendonly is off: a crash of the server loses runs",
			"set appendonly yes and appendfsync always",
		})
	case fsync != "" && fsync != "always":
		findings = append(findings, Finding{
			FindingLazyAOF, SeverityError, server,
			fmt.Sprintf("appendfsync is %s: a crash of the machine loses what was confirmed in the seconds before", fsync),
			"set appendfsync always",
		})
	}
	return findings
}

// checkRole finds out whether the URL fits the kind of server. Who may not ask gets a clear error at the first write.
func checkRole(ctx context.Context, c redis.Cmdable, server string, cluster bool, replicas int) []Finding {
	info, err := c.Info(ctx).Result()
	if err != nil {
		return []Finding{{
			FindingUnchecked, SeverityWarning, server, fmt.Sprintf("the role of the server could not be checked: %v", err),
			"make sure that the URL names a master, or all nodes of a cluster",
		}}
	}
	var findings []Finding
	if !cluster && strings.Contains(info, "cluster_enabled:1") {
		findings = append(findings, Finding{
			FindingCluster, SeverityError, server, "the server is a node of a cluster",
			"name at least two of its nodes: redis://host:port,host:port",
		})
	}
	if strings.Contains(info, "role:slave") {
		findings = append(findings, Finding{
			FindingReplica, SeverityError, server, "the server is a replica, which takes no writes",
			"name the master, or its sentinels: redis+sentinel://host:port,host:port/master",
		})
	}
	return slices.Concat(findings, fewReplicas(server, info, replicas), full(server, info))
}

// almostFull is what part of its memory a server may have left to be called full: what is used goes up and down.
const almostFull = 50

// full finds out from what the server tells of itself whether it refuses writes.
func full(server, info string) []Finding {
	value := func(name string) string {
		_, rest, _ := strings.Cut(info, "\n"+name+":")
		line, _, _ := strings.Cut(rest, "\n")
		return strings.TrimSpace(line)
	}
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(value(name), 10, 64) // one that is not told does not limit
		return n
	}
	var findings []Finding
	if used, most := number("used_memory")-number("mem_not_counted_for_evict"), number("maxmemory"); most > 0 && used >= most-most/almostFull {
		findings = append(findings, Finding{
			FindingFull, SeverityError, server,
			fmt.Sprintf("its memory is full: %d of %d bytes (maxmemory) are used, beyond which it refuses writes", used, most),
			"raise maxmemory, or shorten retention.history; runs go on by themselves when there is room",
		})
	}
	if value("aof_last_write_status") == "err" {
		findings = append(findings, Finding{
			FindingFull, SeverityError, server, "it cannot write its append-only file, and refuses writes",
			"make room on its disk; runs go on by themselves when there is",
		})
	}
	return findings
}

// Writable implements state.Store. Settings may have become others since the store was opened: another server may have taken over.
func (s *Store) Writable(ctx context.Context) error {
	var faults []error
	for _, f := range Check(ctx, s.client, 0) { // replicas are asked, and not counted
		if f.Severity == SeverityError && (!f.Code.lossy() || !s.o.AllowLossy) {
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
func Open(ctx context.Context, rawURL string, o Options) (*Store, []Finding, error) {
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
	for i, f := range findings {
		if f.Code.lossy() && o.AllowLossy {
			findings[i].Severity = SeverityWarning
			continue
		}
		if f.Severity == SeverityError && !f.Code.passes() {
			refusals = append(refusals, f.String())
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

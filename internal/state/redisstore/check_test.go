package redisstore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/finding"
	"agentd/internal/state/redistest"
	"agentd/sdk"
)

// summary lists findings as "code severity".
func summary(findings []finding.Finding) []string {
	var s []string
	for _, f := range findings {
		s = append(s, f.Code+" "+string(f.Severity))
	}
	return s
}

func TestOpen_ChecksDurability(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args     []string
		strict   []string
		lossy    []string
		refusals bool // with AllowLossy too
	}{
		"durable":  {},
		"everysec": {[]string{"--appendfsync", "everysec"}, []string{"redis_append_only_file_lazy error"}, []string{"redis_append_only_file_lazy error"}, false},
		"no file":  {[]string{"--appendonly", "no"}, []string{"redis_no_append_only_file error"}, []string{"redis_no_append_only_file error"}, false},
		"evicting": {
			[]string{"--appendfsync", "no", "--maxmemory-policy", "volatile-lru"},
			[]string{"redis_eviction error", "redis_append_only_file_lazy error"},
			nil, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.StartServer(t, test.args...)
			findings := Check(t.Context(), client(t, server), 0)
			if diff := cmp.Diff(test.strict, summary(findings)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			for _, f := range findings {
				if f.Server != server.Addr() || f.Message == "" || f.Remedy == "" {
					t.Errorf("finding lacks something: %+v", f)
				}
			}
			s, _, err := Open(t.Context(), server.URL(), Options{})
			if len(test.strict) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
				t.Fatalf("open: %v", err)
			}
			for _, f := range findings {
				if !strings.Contains(err.Error(), f.Message) || !strings.Contains(err.Error(), f.Remedy) {
					t.Errorf("the refusal does not mention %q: %v", f.Message, err)
				}
			}
			s, findings, err = Open(t.Context(), server.URL(), Options{AllowLossy: true})
			if test.refusals {
				if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) || strings.Contains(err.Error(), "appendfsync") {
					t.Errorf("open with AllowLossy: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.lossy, summary(findings)); diff != "" {
				t.Errorf("findings with AllowLossy (-want +got):\n%s", diff)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOpen_AcceptsServerThatHidesSettings: managed services forbid CONFIG.
func TestOpen_AcceptsServerThatHidesSettings(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	if err := client(t, server).Do(t.Context(), "ACL", "SETUSER", "default", "-config", "-info", "-command").Err(); err != nil {
		t.Fatal(err)
	}
	s, findings, err := Open(t.Context(), server.URL(), Options{Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	const unchecked = "redis_config_unchecked warning"
	want := []string{unchecked, unchecked, unchecked, unchecked, unchecked} // role, three settings, WAITAOF
	if diff := cmp.Diff(want, summary(findings)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestOpen_RefusesWrongServer(t *testing.T) {
	t.Parallel()
	master := redistest.StartServer(t, "--repl-diskless-sync-delay", "0")
	replica := startReplica(t, master)
	_, _, err := Open(t.Context(), replica.URL(), Options{})
	if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) || !strings.Contains(err.Error(), "redis_is_replica") {
		t.Errorf("open a replica: %v", err)
	}
	node, _, _ := strings.Cut(startCluster(t), ",")
	_, _, err = Open(t.Context(), node, Options{})
	if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) || !strings.Contains(err.Error(), "redis_is_cluster") {
		t.Errorf("open one node of a cluster: %v", err)
	}
}

func TestCheck_LooksAtEveryMaster(t *testing.T) {
	t.Parallel()
	url := startCluster(t)
	s := open(t, url, Options{})
	if err := s.client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"redis_eviction error"}, summary(Check(t.Context(), s.client, 0))); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestOpen_SaysThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	server.Kill()
	for _, url := range []string{
		"redis://ann:secret@" + server.Addr(), "redis://ann:secret@" + server.Addr() + "," + server.Addr(),
		"redis+sentinel://ann:secret@" + server.Addr() + "/journal?sentinel_password=secret",
	} {
		_, _, err := Open(context.Background(), url, Options{})
		e, ok := errors.AsType[*sdk.Error](err)
		if !ok || e.Code != sdk.CodeUnavailable || !e.Retryable {
			t.Errorf("open without a server: %v", err)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
}

// Another server may have taken over, or somebody has changed the settings: a worker that is there already says what it would refuse to start with.
func TestWritable_LooksAtSettingsAgain(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	for _, o := range []Options{{}, {AllowLossy: true}} {
		s, _, err := Open(t.Context(), server.URL(), o)
		if err != nil {
			t.Fatal(err)
		}
		set := func(name, value string) {
			if err := s.client.ConfigSet(t.Context(), name, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Writable(t.Context()); err != nil {
			t.Errorf("%+v: as it was opened: %v", o, err)
		}
		set("maxmemory-policy", "allkeys-lru")
		err = s.Writable(t.Context())
		if !errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) || !strings.Contains(err.Error(), "the server deletes runs when its memory is full; set maxmemory-policy noeviction") {
			t.Errorf("%+v: it evicts: %v", o, err)
		}
		set("maxmemory-policy", "noeviction")
		set("appendonly", "no")
		if err := s.Writable(t.Context()); (err == nil) != o.AllowLossy || err != nil && !strings.Contains(err.Error(), "a crash of the server loses runs") {
			t.Errorf("%+v: it has no file: %v", o, err)
		}
		set("appendonly", "yes")
		if err := s.Writable(t.Context()); err != nil {
			t.Errorf("%+v: as it was again: %v", o, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Command collector stands in for an OpenTelemetry collector where none can be pulled: it takes spans by OTLP over HTTP and
// writes each as a line of JSON to stdout. It ignores metrics, and its arguments.
package main

import (
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"sync"
	"time"

	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// span is a line.
type span struct {
	Service    string            `json:"service"`
	Host       string            `json:"host"`
	Name       string            `json:"name"`
	Trace      string            `json:"trace"`
	ID         string            `json:"id"`
	Parent     string            `json:"parent,omitempty"`
	Links      []string          `json:"links,omitempty"`
	Attributes map[string]string `json:"attributes"`
}

func main() {
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		request, err := read(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, s := range spans(request) {
			if err := out.Encode(s); err != nil {
				log.Fatal(err)
			}
		}
	})
	mux.HandleFunc("POST /v1/metrics", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Addr: ":4318", Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

func read(r *http.Request) (*collectortrace.ExportTraceServiceRequest, error) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(body)
		if err != nil {
			return nil, err
		}
		body = unzipped
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	request := &collectortrace.ExportTraceServiceRequest{}
	return request, proto.Unmarshal(data, request)
}

func spans(request *collectortrace.ExportTraceServiceRequest) []span {
	var all []span
	for _, resource := range request.ResourceSpans {
		about := attributes(resource.Resource.GetAttributes())
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				all = append(all, line(about, s))
			}
		}
	}
	return all
}

func line(about map[string]string, s *trace.Span) span {
	l := span{
		Service: about["service.name"], Host: about["host.name"], Name: s.Name, Trace: hex.EncodeToString(s.TraceId),
		ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId), Attributes: attributes(s.Attributes),
	}
	for _, link := range s.Links {
		l.Links = append(l.Links, hex.EncodeToString(link.SpanId))
	}
	return l
}

func attributes(list []*common.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range list {
		switch v := a.Value.GetValue().(type) {
		case *common.AnyValue_StringValue:
			all[a.Key] = v.StringValue
		default:
			text, err := json.Marshal(a.Value)
			if err == nil {
				all[a.Key] = string(text)
			}
		}
	}
	return all
}

package sealed_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/internal/state/sealed"
	"agentd/internal/state/storetest"
	"agentd/sdk/wire"
)

// What was sealed once must open for ever: these were sealed by the first version.
const (
	sealedEntry = "ff5345414c01026b3106153867b97f138796d5b09c24c84bdb6d0eafe56b847a0fe9627de7a097b4a47482890f17584b907e20fd87c65854b284124e67689064a76fdc50156d7f3e81a344f8e97e127c"
	sealedBlob  = "ff5345414c01026b3106153867b97f1387a16d8091f053419f7409b008197e4bb97ed3495f046a9c11dfd692de8cf49a24ae44397356e17c0f4b40bfe6f88b54087183efda57a3737c57a119b0346513"
	blobName    = "d47b4a8cb74dc086c3b9789522c2429ee03e4f35269f769018f8783e8c2037c0"
	sealedSpec  = "ff5345414c01026b3106153867b97f138765bb28814ebe53b8046a56f13ec89c227758507e61ec1f6255b56b517b0ca96ff341350c8991b4ef6ebeca574ee246193b202803563dd7b20c7ab9220319ba"
	specName    = "7455c81642f319e5f6cdc74f9b6db22bd69fbdd9fa4ac4a254b399c550f79b7e"
)

func TestFormat_IsFixed(t *testing.T) {
	t.Parallel()
	ctx, run, digest := t.Context(), wire.NewRunKey("trip"), storetest.Digest([]byte(content))
	inner := memory.New()
	s := sealed.New(inner, k1(t), nil)
	entry, err := hex.DecodeString(sealedEntry)
	if err != nil {
		t.Fatal(err)
	}
	first := runner.Record{Version: runner.Version{Rev: 1, Etag: "etag"}, Data: entry}
	if _, err := inner.Append(ctx, run, runner.Version{}, first); err != nil {
		t.Fatal(err)
	}
	if head, err := s.Head(ctx, run); err != nil || string(head.Data) != content {
		t.Errorf("entry: %q, %v", head.Data, err)
	}
	if err := s.PutBlob(ctx, run, digest, []byte(content)); err != nil {
		t.Fatal(err)
	}
	if blob, err := inner.Blob(ctx, run, blobName); hex.EncodeToString(blob) != sealedBlob {
		t.Errorf("blob %s, %v", hex.EncodeToString(blob), err)
	}
	if err := s.PutSpec(ctx, digest, []byte(content)); err != nil {
		t.Fatal(err)
	}
	if spec, err := inner.Spec(ctx, specName); hex.EncodeToString(spec) != sealedSpec {
		t.Errorf("spec %s, %v", hex.EncodeToString(spec), err)
	}
}

// FuzzStore_ReadsAnything: whoever writes to the store can put anything there. Nothing but what was sealed opens.
func FuzzStore_ReadsAnything(f *testing.F) {
	entry, err := hex.DecodeString(sealedEntry)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(entry)
	f.Add(entry[:len(entry)-1])
	f.Add(entry[:7])
	f.Add([]byte("\xffSEAL\x01"))
	f.Add([]byte(`{"v":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		run, inner := wire.NewRunKey("trip"), memory.New()
		if _, err := inner.Append(t.Context(), run, runner.Version{}, runner.Record{Version: runner.Version{Rev: 1, Etag: "etag"}, Data: data}); err != nil {
			t.Skip(err)
		}
		head, err := sealed.New(inner, k1(t), nil).Head(t.Context(), run)
		if _, refused := errors.AsType[*sealed.Error](err); refused == bytes.Equal(data, entry) || err == nil && string(head.Data) != content {
			t.Errorf("%x opens as %q, %v", data, head.Data, err)
		}
	})
}

package sdktest_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exampleT is a *testing.T for an example: what fails is a panic. It has what sdktest uses.
type exampleT struct {
	testing.TB
	name     string
	ctx      context.Context
	cancel   context.CancelFunc
	cleanups []func()
}

func newT(name string) *exampleT {
	ctx, cancel := context.WithCancel(context.Background())
	return &exampleT{name: name, ctx: ctx, cancel: cancel}
}

// end ends the test.
func (t *exampleT) end() {
	t.cancel()
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}

func (t *exampleT) Helper()                           {}
func (t *exampleT) Name() string                      { return t.name }
func (t *exampleT) Context() context.Context          { return t.ctx }
func (t *exampleT) Output() io.Writer                 { return io.Discard }
func (t *exampleT) Cleanup(f func())                  { t.cleanups = append(t.cleanups, f) }
func (t *exampleT) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (t *exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (t *exampleT) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (t *exampleT) TempDir() string {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	})
	return dir
}

// Package packed makes what stores keep of journals smaller. An entry above half a KiB is deflated, with a dictionary of what entries have
// in common. What is stored stays JSON, with a layout in clear, which smaller entries are given too: workers of versions that cannot read
// a part of a journal must leave all of it to others (docs/journal.md). Whoever reads gets entries as they were written: nothing but this
// package knows of the form.
package packed

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"

	"github.com/klauspost/compress/flate"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state"
)

// dictionary is what is deflated against. It is part of the layout and may never change.
//
//go:embed dictionary.txt
var dictionary []byte

// A packed entry is the first of these, its deflated bytes in base64, and the second; or the third, the entry, and the fourth.
var (
	deflates  = []byte(`{"v":` + strconv.Itoa(core.PackedLayout) + `,"deflate":"`)
	deflated  = []byte(`"}`)
	encloses  = []byte(`{"v":` + strconv.Itoa(core.PackedLayout) + `,"entry":`)
	enclosing = []byte(`}`)
)

// worthwhile is the size in bytes above which entries are deflated. Below it there is little to gain: most of it is ids and hashes.
const worthwhile = 512

var encoding = base64.RawURLEncoding

// smalls are buffers for deflated entries, the largest of which are half a MiB.
var smalls = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// pack returns the packed form of an entry: deflated where that is smaller by an eighth at least. The largest entries that cannot be
// deflated stay as they are, because stores take no more.
func pack(plain []byte) []byte {
	if len(plain) > worthwhile {
		small := smalls.Get().(*bytes.Buffer)
		defer smalls.Put(small)
		small.Reset()
		err := flate.StatelessDeflate(small, plain, true, dictionary)
		size := len(deflates) + encoding.EncodedLen(small.Len()) + len(deflated)
		if err == nil && size <= len(plain)-len(plain)/8 {
			data := append(make([]byte, 0, size), deflates...)
			return append(encoding.AppendEncode(data, small.Bytes()), deflated...)
		}
	}
	if len(encloses)+len(plain)+len(enclosing) > state.MaxEntry {
		return plain
	}
	return slices.Concat(encloses, plain, enclosing)
}

// inflaters are readers that can be used again: each has 40 KiB.
var inflaters = sync.Pool{New: func() any { return flate.NewReaderDict(bytes.NewReader(nil), dictionary) }}

// unpack returns the entry that was packed. What is larger than any entry, whoever wrote it, is not read further: a few hundred bytes
// could stand for megabytes.
func unpack(data []byte) ([]byte, error) {
	if rest, enclosed := bytes.CutPrefix(data, encloses); enclosed {
		plain, whole := bytes.CutSuffix(rest, enclosing)
		if !whole {
			return nil, notWhole(data)
		}
		return plain, nil
	}
	rest, packed := bytes.CutPrefix(data, deflates)
	if !packed {
		return data, nil
	}
	text, whole := bytes.CutSuffix(rest, deflated)
	small, err := encoding.AppendDecode(nil, text)
	if !whole || err != nil {
		return nil, notWhole(data)
	}
	return inflate(small)
}

func notWhole(data []byte) error {
	return fmt.Errorf("%w: a packed entry of %d bytes is not whole", runner.ErrCorrupt, len(data))
}

func inflate(small []byte) ([]byte, error) {
	inflater := inflaters.Get().(io.Reader)
	defer inflaters.Put(inflater)
	source := bytes.NewReader(small)
	if err := inflater.(flate.Resetter).Reset(source, dictionary); err != nil {
		return nil, fmt.Errorf("inflate an entry: %w", err)
	}
	var plain bytes.Buffer
	plain.Grow(min(4*len(small), state.MaxEntry))
	size, err := plain.ReadFrom(io.LimitReader(inflater, state.MaxEntry+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %d bytes of a packed entry: %w", runner.ErrCorrupt, len(small), err)
	case size > state.MaxEntry:
		return nil, fmt.Errorf("%w: %d bytes of a packed entry have more than the %d that an entry may have", runner.ErrCorrupt, len(small), state.MaxEntry)
	case source.Len() > 0:
		return nil, fmt.Errorf("%w: %d bytes of a packed entry have something behind their end", runner.ErrCorrupt, len(small))
	}
	return plain.Bytes(), nil
}

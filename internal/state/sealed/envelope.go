package sealed

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"strconv"

	"golang.org/x/crypto/chacha20poly1305"

	"agentd/internal/state"
	"agentd/sdk/wire"
)

// An envelope is mark ‖ length of the key id in one byte ‖ key id ‖ fingerprint of the key ‖ nonce ‖ sealed bytes with
// their tag (docs/encryption.md). The mark begins with a byte that no JSON text has, so that what is not sealed can be
// told, and ends with the version.
var mark = []byte("\xffSEAL\x01")

const (
	nonceSize = chacha20poly1305.NonceSizeX
	overhead  = 6 + 1 + wire.MaxKeyID + fingerprintSize + nonceSize + chacha20poly1305.Overhead
)

// An envelope fits into what stores keep beside an entry.
var _ [state.MaxRecord - state.MaxEntry - overhead]struct{}

func isSealed(data []byte) bool { return bytes.HasPrefix(data, mark) }

// place is where sealed bytes belong. It is authenticated with them, so that they open nowhere else.
type place struct {
	// kind is "entry", "blob" or "spec".
	kind string
	// run is zero for a spec.
	run wire.RunKey
	// rev is the number of an entry.
	rev uint64
	// name is the etag of an entry, or the digest of a content.
	name string
}

// frame appends b with its length, so that parts cannot run into each other.
func frame(to, b []byte) []byte { return append(binary.AppendUvarint(to, uint64(len(b))), b...) }

// associated is what is authenticated beside the sealed bytes.
func (p place) associated(keyID string) []byte {
	var b []byte
	for _, part := range []string{p.run.Partition, p.run.Token, p.kind, strconv.FormatUint(p.rev, 10), p.name, keyID} {
		b = frame(b, []byte(part))
	}
	return b
}

// seal returns the envelope of plain. Entries get random nonces. Contents are put again after a crash, perhaps over a part
// of the same: their envelopes must be equal whenever place and plain are, so their nonces follow from these.
func (k *key) seal(p place, plain []byte) []byte {
	associated := p.associated(k.id)
	nonce := make([]byte, nonceSize)
	if p.kind == kindEntry {
		rand.Read(nonce) // never fails
	} else {
		copy(nonce, mac(k.nonces, associated, plain))
	}
	out := make([]byte, 0, overhead+len(plain))
	out = append(out, mark...)
	out = append(out, byte(len(k.id)))
	out = append(out, k.id...)
	out = append(out, k.fingerprint...)
	out = append(out, nonce...)
	return k.aead.Seal(out, nonce, plain, associated)
}

// open returns what was sealed for that place.
func (r *Keyring) open(p place, data []byte) ([]byte, *Error) {
	e := &Error{place: p}
	rest := data[len(mark):]
	size := 0
	if len(rest) > 0 {
		size = int(rest[0])
	}
	if size == 0 || size > wire.MaxKeyID || len(rest) < 1+size+fingerprintSize+nonceSize {
		e.Fault = FaultAltered
		return nil, e
	}
	e.KeyID, rest = string(rest[1:1+size]), rest[1+size:]
	k := r.key(e.KeyID)
	if k == nil {
		e.Fault = FaultNoKey
		return nil, e
	}
	if !bytes.Equal(rest[:fingerprintSize], k.fingerprint) {
		e.Fault = FaultOtherKey
		return nil, e
	}
	rest = rest[fingerprintSize:]
	plain, err := k.aead.Open(nil, rest[:nonceSize], rest[nonceSize:], p.associated(k.id))
	if err != nil {
		e.Fault = FaultAltered
		return nil, e
	}
	if plain == nil {
		plain = []byte{} // the store's answer for an empty content
	}
	return plain, nil
}

// address is what a content is called in the inner store. It has the form of a digest; without the key nobody can tell
// from it whether a content that they guess is there.
func (k *key) address(p place) string { return hex.EncodeToString(mac(k.names, p.associated(k.id))) }

package sealed

import "agentd/sdk/wire"

// Seals reports whether what is written is sealed.
func (s *Store) Seals() bool { return s.keys.current != nil }

// SealDocument seals the document of the index of runs that tells of an entry of the run, where the store seals what it keeps.
func (s *Store) SealDocument(run wire.RunKey, rev uint64, data []byte) []byte {
	if !s.Seals() {
		return data
	}
	return s.keys.current.seal(documentOf(run, rev), data)
}

// OpenDocument opens what SealDocument sealed.
func (s *Store) OpenDocument(run wire.RunKey, rev uint64, data []byte) ([]byte, error) {
	if !isSealed(data) {
		if s.Seals() && !s.keys.allowPlaintext {
			return nil, s.refused(&Error{place: documentOf(run, rev), Fault: FaultPlaintext})
		}
		return data, nil
	}
	plain, e := s.keys.open(documentOf(run, rev), data)
	if e != nil {
		return nil, s.refused(e)
	}
	return plain, nil
}

func documentOf(run wire.RunKey, rev uint64) place {
	return place{kind: kindDocument, run: run, rev: rev}
}

package core

// Parts are what an entry has in the order in which it came about, each as an entry with the revision, the cause and the etag of all of it:
// what its message did, dated when the driver took the run, if that was written with what the driver did next, and then that. An entry
// with one part is that part.
func (e *Entry) Parts() []*Entry {
	if e.Absorbed == nil {
		return []*Entry{e}
	}
	absorbed, rest := *e, *e
	absorbed.Change, absorbed.Blobs = *e.Absorbed, nil
	if d := absorbed.Head.Driver; d != nil {
		absorbed.At = d.Since
	}
	rest.Absorbed = nil
	return []*Entry{&absorbed, &rest}
}

// InParts are the parts of entries, in their order. What has an Absorbed is not among them, so nobody can apply them to a State.
func InParts(entries []Entry) []Entry {
	parts := make([]Entry, 0, len(entries))
	for i := range entries {
		for _, part := range entries[i].Parts() {
			parts = append(parts, *part)
		}
	}
	return parts
}

// Joinable reports whether the change, which an input made of the run with head was, may be written with what the driver does next: an
// answer lets a run that waited go on, and nothing is to leave the worker because of it but a model call. Whoever decides something, or
// changes what is asked, is not kept waiting for a model.
func (c *Change) Joinable(head *Head) bool {
	if c.Kind != KindAnswered || head.Status != StatusWaiting || c.Head.Status != StatusRunning {
		return false
	}
	return c.Head.Cancel == nil && !c.Head.Urgent && len(c.Effects) == 0 && len(c.Decisions) == 0
}

// After is the change together with the one that the driver found not yet written, which must be Joinable. Both were made for the same
// revision.
func (c Change) After(absorbed *Change) Change {
	c.Absorbed = absorbed
	c.Head.V = max(c.Head.V, layoutJoint)
	return c
}

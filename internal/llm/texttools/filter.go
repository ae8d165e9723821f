package texttools

import (
	"regexp"
	"strings"

	"agentd/sdk"
)

// filter passes on the prose of a streamed reply. Calls, and what may turn out to be the beginning of one or the fence
// around one, are held back; what is sent in the end is Parse's Text.
type filter struct {
	send func(sdk.Delta)
	// held has arrived and was neither sent nor taken out.
	held string
	// searched is how much of held has no closing tag.
	searched int
	// prose was found outside of calls and is not sent yet.
	prose string
	// tags is how many opening tags may still be looked at before the reply has ended.
	tags int
	// began and called say whether prose was sent, and whether a call was found; announced that of the call held now; ended that nothing more
	// of the reply comes.
	began, called, announced, ended bool
}

func newFilter(send func(sdk.Delta)) *filter { return &filter{send: send, tags: maxTags} }

// partialTag matches the beginning of a tag at the end of a text.
var partialTag = regexp.MustCompile(`(?i)<(t|to|too|tool(\s[^<>]*)?)?$`)

// pendingProse is where that begins which must wait for what follows it: space, which is dropped at the end, and a fence, which is
// dropped when nothing but a call is in it. It looks at no more than that: a reply may be 10 MiB of space.
func pendingProse(text string) int {
	const space, fence = " \t\r\n", "```"
	rest := strings.TrimRight(text, space)
	from := len(rest)
	for range len(fence) { // the next fence may have come in part
		before := strings.TrimRightFunc(strings.TrimRight(rest, space), func(r rune) bool {
			return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		})
		if strings.HasSuffix(before, fence) {
			from = min(from, len(before)-len(fence))
		}
		from = min(from, len(rest))
		if !strings.HasSuffix(rest, "`") {
			break
		}
		rest = rest[:len(rest)-1]
	}
	return from
}

// toolName matches the name in a call of either form.
var toolName = regexp.MustCompile(`(?i)("tool_name"\s*:\s*"|<tool_name>\s*)([^"<]+?)\s*["<]`)

func (f *filter) add(d sdk.Delta) {
	if d.Reset {
		*f = *newFilter(f.send)
		f.send(d)
		return
	}
	if d.Text == "" {
		f.send(d)
		return
	}
	f.held += d.Text
	f.drain()
}

// flush ends the reply: what is held is a call that was not closed, or text.
func (f *filter) flush() {
	f.tags, f.ended = maxTags, true
	f.drain()
	if f.called {
		f.prose = strings.TrimRight(withoutEmptyFences(f.prose), " \t\r\n")
	}
	f.emit(f.prose)
}

func (f *filter) drain() {
	for f.held != "" {
		at := candidate(f.held)
		if at < 0 {
			f.release()
			return
		}
		f.prose += f.held[:at]
		f.held, f.searched = f.held[at:], max(f.searched-at, 0)
		f.sendProse()
		if !f.ended && !f.closing() {
			f.announce(f.held)
			return
		}
		b, ok := nextBlock(f.held, 0, &f.tags)
		switch {
		case f.tags == 0 && f.ended: // such a reply cannot be understood
			f.held = ""
		case ok && (b.firm || f.ended):
			f.prose += f.held[:b.start]
			f.announce(f.held[b.bodyStart:b.bodyEnd])
			f.held, f.searched, f.announced, f.called = f.held[b.end:], 0, false, true
		case f.ended:
			f.release()
			return
		default:
			f.announce(f.held)
			return
		}
	}
	f.sendProse()
}

// candidate is where the first tag is that is not just mentioned; -1 is none.
func candidate(text string) int {
	for from := 0; ; {
		tag := openTag.FindStringIndex(text[from:])
		if tag == nil {
			return -1
		}
		if at := from + tag[0]; !mentioned(text, at) && !strings.HasSuffix(text[:from+tag[1]], "/>") {
			return at
		}
		from += tag[1]
	}
}

// closing reports whether a closing tag has arrived since the last time.
func (f *filter) closing() bool {
	const longestTag = 32
	start := max(f.searched-longestTag, 0)
	f.searched = len(f.held)
	return closeTag.MatchString(f.held[start:])
}

// release makes prose of what cannot be part of a call.
func (f *filter) release() {
	keep := len(f.held)
	if !f.ended {
		if m := partialTag.FindStringIndex(f.held); m != nil {
			keep = m[0]
		}
		keep = len(strings.TrimRight(f.held[:keep], "`")) // they say whether a tag is only mentioned
	}
	f.prose += f.held[:keep]
	f.held, f.searched = f.held[keep:], 0
	f.sendProse()
}

// sendProse sends what does not have to wait.
func (f *filter) sendProse() {
	if f.called {
		f.prose = withoutEmptyFences(f.prose)
	}
	ready := pendingProse(f.prose)
	if f.emit(f.prose[:ready]) {
		f.prose = f.prose[ready:]
	}
}

// emit sends text, without the space that Parse's Text does not begin with, and reports whether there was any.
func (f *filter) emit(text string) bool {
	if !f.began && f.called {
		text = strings.TrimLeft(text, " \t\r\n")
	}
	if text == "" {
		return false
	}
	f.began = true
	f.send(sdk.Delta{Text: text})
	return true
}

// announce tells the name of the tool of the call that is held, once.
func (f *filter) announce(call string) {
	const nameWithin = 4 << 10 // the name comes before the arguments
	if f.announced {
		return
	}
	if name := toolName.FindStringSubmatch(call[:min(len(call), nameWithin)]); name != nil {
		f.announced = true
		f.send(sdk.Delta{Tool: name[2]})
	}
}

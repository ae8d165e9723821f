package texttools

import (
	"regexp"
	"strings"
)

// block is one <tool> element of a text.
type block struct {
	// start and end enclose the element, bodyStart and bodyEnd what is in it.
	start, bodyStart, bodyEnd, end int
	// closed says that the closing tag was written, firm that nothing which follows can show it to be part of the body.
	closed, firm bool
}

// tag is how one is written; anchored is the same at the beginning of a text.
type tag struct {
	*regexp.Regexp
	anchored *regexp.Regexp
}

func newTag(expression string) tag {
	return tag{regexp.MustCompile(`(?i)` + expression), regexp.MustCompile(`(?i)^` + expression)}
}

// at0 is the length of the tag that text begins with; 0 is none.
func (t tag) at0(text string) int {
	if m := t.anchored.FindStringIndex(text); m != nil {
		return m[1]
	}
	return 0
}

var (
	openTag  = newTag(`<tool(\s[^<>]*)?>`)
	closeTag = newTag(`</tool\s*>`)
	// argumentsOpen and argumentsClose enclose what may have elements of any name, "tool" included.
	argumentsOpen  = newTag(`<arguments(\s[^<>]*)?>`)
	argumentsClose = newTag(`</arguments\s*>`)
)

// maxTags is how many opening tags of a reply are looked at: for each, all that follows it may have to be read.
const maxTags = 64

const (
	cdataOpen  = "<![CDATA["
	cdataClose = "]]>"
)

// nextBlock finds the first element at or after from, looking at no more than *tags tags, which it counts down. A tag that is only
// mentioned is text: one inside backticks, or one that is never closed and is not followed by the beginning of a call.
func nextBlock(text string, from int, tags *int) (block, bool) {
	closable := closeTag.MatchString(text[from:])
	for {
		tag := openTag.FindStringIndex(text[from:])
		if tag == nil || *tags == 0 {
			return block{}, false
		}
		b := block{start: from + tag[0], bodyStart: from + tag[1]}
		from = b.bodyStart
		if mentioned(text, b.start) || strings.HasSuffix(text[b.start:b.bodyStart], "/>") {
			continue
		}
		*tags--
		body := text[b.bodyStart:]
		if !closable && !recognisable(body) {
			continue
		}
		length, closing, firm := bodyLength(body)
		b.bodyEnd, b.end, b.closed = b.bodyStart+length, b.bodyStart+length+closing, closing > 0
		b.firm = b.closed && firm
		if b.closed || recognisable(body) {
			return b, true
		}
	}
}

// mentioned reports whether the tag at i is inline code. A fence has three backticks and a line of its own.
func mentioned(text string, i int) bool {
	return i > 0 && text[i-1] == '`' && !strings.HasSuffix(text[:i], "```")
}

// recognisable reports whether a body begins as a call does.
func recognisable(body string) bool {
	body = strings.TrimLeft(body, space)
	body = strings.TrimLeft(body[len(fenceOpen.FindString(body)):], space)
	return strings.HasPrefix(body, "{") || strings.HasPrefix(body, "<")
}

const space = " \t\r\n"

var fenceOpen = regexp.MustCompile("^```[A-Za-z]*")

// unfenced removes a fence around a body.
func unfenced(body string) string {
	body = strings.TrimSpace(body)
	fence := fenceOpen.FindString(body)
	if fence == "" {
		return body
	}
	return strings.TrimSpace(strings.TrimSuffix(body[len(fence):], "```"))
}

// bodyLength is how long a body is, and how long the closing tag after it; 0 is a body that is not closed. It is firm
// unless more text could make the body longer.
func bodyLength(body string) (length, closing int, firm bool) {
	if strings.HasPrefix(unfenced(body), "{") {
		// The closing tag may be part of a string.
		if object := strings.IndexByte(body, '{'); object >= 0 {
			if end := objectEnd(body[object:]); end > 0 {
				rest := body[object+end:]
				if tag := closeTag.FindStringIndex(rest); tag != nil && strings.Trim(rest[:tag[0]], "` \t\r\n") == "" {
					return object + end + tag[0], tag[1] - tag[0], true
				}
			}
		}
		length, closing = untilClose(body)
		return length, closing, false
	}
	length, closing = elementEnd(body)
	return length, closing, !argumentsOpen.MatchString(body[:length]) || argumentsClose.MatchString(body[:length])
}

// objectEnd is the length of the JSON object that text begins with; 0 is one that does not end.
func objectEnd(text string) int {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			depth++
		case c == '}', c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// untilClose ends a body at the next closing tag, or where the next call begins without one before it.
func untilClose(body string) (length, closing int) {
	end := closeTag.FindStringIndex(body)
	if next := openTag.FindStringIndex(body); next != nil && (end == nil || next[0] < end[0]) && recognisable(body[next[1]:]) {
		return next[0], 0
	}
	if end == nil {
		return len(body), 0
	}
	return end[0], end[1] - end[0]
}

// elementEnd ends an XML body: tags inside character data and inside the arguments do not count.
func elementEnd(body string) (length, closing int) {
	open := false // that there are arguments without an end
	for i := 0; i < len(body); {
		at := strings.IndexByte(body[i:], '<')
		if at < 0 {
			break
		}
		i += at
		rest := body[i:]
		switch {
		case strings.HasPrefix(rest, cdataOpen):
			end := strings.Index(rest, cdataClose)
			if end < 0 {
				return len(body), 0
			}
			i += end + len(cdataClose)
		case closeTag.at0(rest) > 0:
			return i, closeTag.at0(rest)
		case !open && argumentsOpen.at0(rest) > 0:
			i += argumentsOpen.at0(rest)
			length := argumentsEnd(body[i:])
			open = length < 0
			i += max(length, 0)
		case openTag.at0(rest) > 0 && recognisable(rest[openTag.at0(rest):]):
			return i, 0
		default:
			i++
		}
	}
	return len(body), 0
}

// argumentsEnd is where the arguments end that text begins inside of; -1 when they do not.
func argumentsEnd(text string) int {
	for i := 0; i < len(text); {
		at := strings.IndexByte(text[i:], '<')
		if at < 0 {
			return -1
		}
		i += at
		switch rest := text[i:]; {
		case strings.HasPrefix(rest, cdataOpen):
			end := strings.Index(rest, cdataClose)
			if end < 0 {
				return -1
			}
			i += end + len(cdataClose)
		case argumentsClose.at0(rest) > 0:
			return i
		default:
			i++
		}
	}
	return -1
}

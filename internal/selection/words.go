package selection

import (
	_ "embed"
	"regexp"
	"strings"
	"sync"
	"unicode"

	"github.com/kljensen/snowball/english"
)

// words splits a text into the stems of its words, in order: "createPullRequest", "create_pull_request" and "creating a pull request"
// have the same ones. Words that say nothing of what is asked for are left out.
func words(text string) []string {
	var stems []string
	for _, word := range split(text) {
		if word = strings.ToLower(word); !stopWords[word] {
			stems = append(stems, english.Stem(word, false))
		}
	}
	return stems
}

// shape is a piece of a text that shows what is meant without a word for it.
type shape struct {
	pattern *regexp.Regexp
	means   string
}

var shapes = []shape{
	{regexp.MustCompile(`https?://`), "url page"},
	{regexp.MustCompile(`(?:^|\s)~?/\S|(?:^|[\s/])[\w*-]*\.[a-z]{1,5}(?:$|[\s,;:?!)])`), "file path"},
	{regexp.MustCompile(`\w@\w+\.\w`), "email"},
	{regexp.MustCompile(`(?:^|\s)#[a-z]`), "channel"},
	{regexp.MustCompile(`(?:^|\s)#\d`), "number issue"},
	{regexp.MustCompile(`(?:^|\s):\w+:`), "emoji reaction"},
	{regexp.MustCompile(`\d\s*[-+*/^]\s*\(?\d.*[-+*/^=]|\d \s*[+*/^]\s*\d`), "calculate expression"},
	{regexp.MustCompile(`-?\d+\.\d+[°\s]*[NS]?,\s*-?\d+\.\d+`), "latitude longitude coordinates"},
	{regexp.MustCompile(`\w\(.*\)`), "code script"},
	{regexp.MustCompile(`\bselect\b.*\bfrom\b`), "sql query"},
}

// shown are the stems of what the shapes of a text mean.
func shown(text string) []string {
	var stems []string
	for _, s := range shapes {
		if s.pattern.MatchString(text) {
			stems = append(stems, words(s.means)...)
		}
	}
	return stems
}

// split cuts a text where a word ends: at everything but letters and digits, and before the capitals of camel case.
func split(text string) []string {
	var all []string
	var word []rune
	flush := func() {
		if len(word) > 0 {
			all = append(all, string(word))
		}
		word = nil
	}
	for _, r := range text {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			flush()
			continue
		case unicode.IsUpper(r) && len(word) > 0 && unicode.IsLower(word[len(word)-1]):
			flush()
		}
		word = append(word, r)
	}
	flush()
	return all
}

var stopWords = wordSet("a an the of to in on at by for with and or but if is are was were be been do does did it its this that these those i me my " +
	"you your we us our they them their he she his her as so not no can could would will shall should may might must have has had there here than then " +
	"please just")

func wordSet(text string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		set[word] = true
	}
	return set
}

//go:embed words_en.txt
var alike string

// similar are the stems that people use for each other, by stem: a line of the file is a group of words with much the same meaning.
// Most processes ask for none.
var similar = sync.OnceValue(func() map[string][]string { return groups(alike) })

func groups(text string) map[string][]string {
	by := map[string][]string{}
	for line := range strings.Lines(text) {
		group := words(line)
		for i, stem := range group {
			by[stem] = append(append(by[stem], group[:i]...), group[i+1:]...)
		}
	}
	return by
}

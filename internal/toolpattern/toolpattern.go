// Package toolpattern is how policies, hooks and init events name tools: by patterns in which "*" stands for any characters, "?"
// for one, and "[abc]" for one of those. It is pure.
package toolpattern

import (
	"path"
	"slices"

	"agentd/sdk"
)

// Check says what is wrong with the form of a pattern. The error is CodeConfig.
func Check(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
		return sdk.Errorf(sdk.CodeConfig, `%q cannot be read as a pattern of tool names, such as "book_*"`, pattern)
	}
	return nil
}

// Match reports whether one of the patterns matches the name of a tool; one that Check refuses matches none.
func Match(patterns []string, tool string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matched, err := path.Match(pattern, tool) // names of tools have no slashes
		return err == nil && matched
	})
}

// Package contractlint judges contracts for their authors: what is wrong or unwise in one, what a new state of it changes
// for others, and whether it can be published.
package contractlint

//go:build !race

package core_test

const defaultHistories = "5000"

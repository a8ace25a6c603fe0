//go:build linux && !race

package load

const raced = false

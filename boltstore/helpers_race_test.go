//go:build race

package boltstore

// underRace is true if the race detector is on.
const underRace = true

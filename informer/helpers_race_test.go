//go:build race

package informer

// underRace is true if the race detector is on.
const underRace = true

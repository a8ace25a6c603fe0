//go:build race

package codec_test

// underRace is true if the race detector is on.
const underRace = true

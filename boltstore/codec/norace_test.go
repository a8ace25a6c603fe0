//go:build !race

package codec_test

const underRace = false

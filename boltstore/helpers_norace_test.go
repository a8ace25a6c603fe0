//go:build !race

package boltstore

const underRace = false

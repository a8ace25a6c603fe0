//go:build !linux

package boltstore

const pidsAreKnown = false

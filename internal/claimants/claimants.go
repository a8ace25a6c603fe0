// Package claimants finds the informers that have claimed the sources of a file.
package claimants

// Of returns each *informer.Informer and *reflector.Standalone that has claimed a source
// of a *boltstore.DB, always in the same order. Package boltstore provides it.
var Of func(db any) []any

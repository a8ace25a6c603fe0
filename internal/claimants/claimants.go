// Package claimants finds what has claimed the sources of a file.
package claimants

// Of returns what has claimed sources of a *boltstore.DB, in an order that stays:
// *informer.Informer and *reflector.Standalone. Package boltstore provides it.
var Of func(db any) []any

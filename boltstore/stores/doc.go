// Package stores has the other stores of client-go's package cache over a file. Their
// contents outlive the process.
//
//	client-go                      here
//	cache.NewTTLStore              [NewTTLStore]
//	cache.NewExpirationStore       [NewExpirationStore]
//	cache.NewThreadSafeStore       [NewThreadSafeStore]
//	cache.NewUndeltaStore          [Push], or cache.UndeltaStore itself
//	cache.NewGenericLister, cache.ListAll, listers of client-go's package listers:
//	    themselves, over a boltstore.Claimed, or over a view by [ReadOnly]
//
// A [boltstore.Claimed] is the store beneath. An informer has one (GetIndexer). A program
// without an informer claims a source of its own, whose group and resource it chooses:
//
//	s, err := db.Claim(boltstore.Claim{
//		Source:  boltstore.Source{Group: "example.com", Version: "v1", Resource: "tokens", Form: boltstore.FormTyped},
//		Example: &Token{},
//		KeyFunc: tokenKey,
//	})
//
// Token is a struct whose pointer has the two methods of runtime.Object. Nothing else of
// Kubernetes is required. An informer's store has only the informer's objects: give
// entries that expire, or have keys of their own, a source of their own.
//
// # What a write promises
//
// A write returns once it is committed. With boltstore.DurabilityFull, the default, it
// then survives a power failure; with DurabilityProcess it survives the end of the
// process. A write that returns an error may still be stored. A write of several objects
// is stored whole or not at all. In an idle file a write takes some milliseconds; writes
// of several goroutines at once share a commit.
//
// # What a read promises
//
// Reads show committed objects. These are shared: do not change them. Reads are those of
// [boltstore.Store], from memory if boltstore.Options.ObjectMemory allows.
//
// The stores are safe for concurrent use. They live as long as the claim: after Release
// or DB.Close writes fail with boltstore.ErrClosed.
package stores

// Package stores has the other stores of client-go's package cache over a file: what is
// in them outlives the process.
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
// Token is a pointer to a struct with the two methods of runtime.Object. Nothing else of
// Kubernetes' is asked of it. An informer's store has the informer's objects only: give
// whatever expires, or has keys of its own, a source of its own.
//
// # What a write promises
//
// A write returns once it is committed. With boltstore.DurabilityFull, the default, it
// then survives a power failure; with DurabilityProcess it survives the end of the
// process. A write that returns an error may be there all the same. A write of several
// objects is there whole or not at all. An idle file takes some milliseconds for it;
// writes of several goroutines at once share a commit.
//
// # What a read promises
//
// Reads show what is committed, and objects that are shared: do not change them. They
// are those of [boltstore.Store], in memory where boltstore.Options.ObjectMemory allows.
//
// The stores are safe for concurrent use. They live as long as the claim: after Release
// or DB.Close writes fail with boltstore.ErrClosed.
package stores

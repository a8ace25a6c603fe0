package stores

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// NewTTLStore takes the place of cache.NewTTLStore: an entry that was stored longer than
// ttl ago is gone, even if the process was not running all the time. A ttl of 0 or less
// keeps entries for ever. The clock is boltstore.Options.Clock. See [NewExpirationStore].
func NewTTLStore(s *boltstore.Claimed, ttl time.Duration) (cache.Store, error) {
	return NewExpirationStore(s, &cache.TTLPolicy{TTL: ttl, Clock: s.Clock()})
}

// NewExpirationStore takes the place of cache.NewExpirationStore. As there, the policy is
// asked when an entry is read. Get, GetByKey and List leave out expired entries and
// remove them. ListKeys still has an expired entry's key if nobody has read the entry
// since. Update does the same as Add: both begin the time again. Opening the store also
// removes expired entries, since an earlier process may have left entries that nobody
// will read.
//
// An entry that is stored again while a read removes the expired one stays.
//
// # Time
//
// The policy gets the time of storing as a time of this life of the process, to be
// compared with boltstore.Options.Clock. It gives the true age, to a second, across
// restarts, sleep and reboots, however the wall clock was set. Across a reboot, the wall
// clock must have been known to be right when the entry was stored, and must be now; see
// boltstore.Options.TrustClock. Otherwise the time is zero, and a cache.TTLPolicy counts
// the entry as expired. The age may still become known, for example on a device that has
// just started and whose clock is not synchronised yet. Until then such an entry is hidden
// but not removed.
//
// # Errors
//
// Writes return the errors of [boltstore.Claimed], and reads ErrClosed. An entry that
// damage has taken counts as expired: the log names it, and Add stores it again. A store
// that is opened with a damaged source, or with another Go type of the entries, begins
// empty: the file's entries are removed. The source of an informer is an error, since its
// first list would remove the entries.
//
// # Differences from client-go
//
// Entries are runtime.Objects of one Go type. LastStoreSyncResourceVersion also moves
// with Add. Replace stores all objects or none.
func NewExpirationStore(s *boltstore.Claimed, policy cache.ExpirationPolicy) (cache.Store, error) {
	if !s.Filled.FilledByProgram() {
		return nil, fmt.Errorf("stores: %s is the source of an informer; claim a source of its own for entries "+
			"that expire", s.Source())
	}
	if err := current(s); err != nil {
		return nil, err
	}
	e := &expiring{s: s, policy: policy}
	if _, err := e.sweep(); err != nil {
		return nil, err
	}
	if why := s.Err(); why != nil { // the sweep has read all there is
		if err := empty(s, why.Error()); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// current removes contents of another Go type that are not served.
func current(s *boltstore.Claimed) error {
	why := s.Outdated()
	if p, err := s.Page(nil, 1); why == "" || err == nil && p.Synced { // by Claim.ServeOutdated
		return nil
	}
	return empty(s, why)
}

func empty(s *boltstore.Claimed, why string) error {
	s.Logger().Info("Warning: the store begins empty; its objects in the file are removed",
		"source", s.Source().String(), "reason", why)
	return s.Upstream.Empty()
}

// expiring is a store whose entries expire.
type expiring struct {
	s      *boltstore.Claimed
	policy cache.ExpirationPolicy
	logged sync.Once
}

// expired says whether an entry must not be served, and whether it may be removed.
func (e *expiring) expired(o boltstore.Stored) (hide, remove bool) {
	hide = e.policy.IsExpired(&cache.TimestampedEntry{Obj: o.Object, Timestamp: o.Time})
	return hide, hide && (o.Lost || !o.Time.IsZero())
}

// sweep returns the entries that have not expired, and removes the others.
func (e *expiring) sweep() ([]any, error) {
	objs := []any{}
	for from, more := []byte(nil), true; more; more = from != nil {
		page, next, err := e.s.Filled.PageStored(from, 1000)
		if err != nil && !errors.Is(err, boltstore.ErrDamaged) {
			return objs, err
		}
		var gone []boltstore.Stored
		for _, o := range page {
			hide, remove := e.expired(o)
			if !hide {
				objs = append(objs, o.Object)
			}
			if remove {
				gone = append(gone, o)
			}
		}
		e.remove(gone...)
		from = next
	}
	return objs, nil
}

// remove removes expired entries. If that fails they stay hidden, and the next read
// tries again; DB.Err says why commits fail.
func (e *expiring) remove(gone ...boltstore.Stored) { _ = e.s.Filled.DeleteStored(gone...) }

// List implements cache.Store.
func (e *expiring) List() []any {
	objs, err := e.sweep()
	if err != nil { // cache.Store has no error to return
		e.logged.Do(func() {
			e.s.Logger().Error(err, "A list of entries is not whole", "source", e.s.Source().String())
		})
	}
	return objs
}

// Get implements cache.Store.
func (e *expiring) Get(obj any) (any, bool, error) {
	key, err := e.s.Key(obj)
	if err != nil {
		return nil, false, err
	}
	return e.GetByKey(key)
}

// GetByKey implements cache.Store.
func (e *expiring) GetByKey(key string) (any, bool, error) {
	o, exists, err := e.s.Filled.GetStored(key)
	switch {
	case errors.Is(err, boltstore.ErrDamaged):
		return nil, false, nil
	case err != nil || !exists:
		return nil, false, err
	}
	hide, remove := e.expired(o)
	if remove {
		e.remove(o)
	}
	if hide {
		return nil, false, nil
	}
	return o.Object, true, nil
}

// ListKeys implements cache.Store.
func (e *expiring) ListKeys() []string { return e.s.ListKeys() }

// Add implements cache.Store.
func (e *expiring) Add(obj any) error { return e.s.Add(obj) }

// Update implements cache.Store.
func (e *expiring) Update(obj any) error { return e.s.Update(obj) }

// Delete implements cache.Store.
func (e *expiring) Delete(obj any) error { return e.s.Delete(obj) }

// Replace implements cache.Store.
func (e *expiring) Replace(objs []any, resourceVersion string) error {
	return e.s.Replace(objs, resourceVersion)
}

// LastStoreSyncResourceVersion implements cache.Store.
func (e *expiring) LastStoreSyncResourceVersion() string { return e.s.LastStoreSyncResourceVersion() }

// Bookmark implements cache.Store.
func (e *expiring) Bookmark(resourceVersion string) { e.s.Bookmark(resourceVersion) }

// Resync implements cache.Store.
func (e *expiring) Resync() error { return nil }

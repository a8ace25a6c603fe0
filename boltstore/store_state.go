package boltstore

import "time"

// State is what the file says of a source.
type State struct {
	Source          Source   `json:"source"`
	ClusterUID      string   `json:"clusterUID,omitempty"`
	Server          string   `json:"server,omitempty"`
	FlowSchemaUID   string   `json:"flowSchemaUID,omitempty"` // see [Server]
	ServerCA        string   `json:"serverCA,omitempty"`      // likewise
	Kind            string   `json:"kind"`
	APIVersion      string   `json:"apiVersion"`
	Namespaced      bool     `json:"namespaced"`      // Scope is ScopeNamespaced
	Scope           Scope    `json:"scope,omitempty"` // as described, else as the objects tell; "" as long as nothing does
	Names           []string `json:"names,omitempty"` // see Description
	History         uint64   `json:"history"`
	Synced          bool     `json:"synced"` // has been read from the server once
	ResourceVersion string   `json:"resourceVersion"`
	// Confirmed is when the server last confirmed the state, by the device's clock
	// of that time. ConfirmedAge is how long ago that was when the State was
	// taken, nil if that is not known, see Options.TrustClock.
	Confirmed    time.Time      `json:"confirmed"`
	ConfirmedAge *time.Duration `json:"confirmedAgeNanoseconds,omitempty"`
	// Claimed is when a program was last seen to use it, to the hour. ClaimedAge is
	// as ConfirmedAge.
	Claimed      time.Time      `json:"claimed"`
	ClaimedAge   *time.Duration `json:"claimedAgeNanoseconds,omitempty"`
	Objects      uint64         `json:"objects"`
	Bytes        uint64         `json:"bytes"`
	Seq          uint64         `json:"seq"`  // of the last journal entry
	Told         uint64         `json:"told"` // plain handlers have been told up to it
	JournalBytes uint64         `json:"journalBytes"`
	Indices      []string       `json:"indices,omitempty"`
	Degraded     string         `json:"degraded,omitempty"`
	// Unstored objects have been shown by the server and are not in the file as
	// they were shown, since they could not be transformed, keyed or encoded, the
	// last of them for UnstoredReason. They are read again. Unindexed objects are
	// in the file without values of an index whose function failed on them.
	Unstored       uint64 `json:"unstored,omitempty"`
	UnstoredReason string `json:"unstoredReason,omitempty"`
	Unindexed      uint64 `json:"unindexed,omitempty"`
	// Outdated is why the program that has claimed the source does not use what
	// the file holds, as [Store.Outdated] says, and Reindexed how often it has
	// indexed the objects in the file, by index. Of a file that nobody has open
	// they are not known.
	Outdated  string            `json:"outdated,omitempty"`
	Reindexed map[string]uint64 `json:"reindexed,omitempty"`
	// Handlers that are durable. Only in what DB.States returns, see Store.Handlers.
	Handlers []HandlerState `json:"handlers,omitempty"`
}

// Stale counts changes that were dropped because the file held newer ones.
func (s *Store) Stale() uint64 { return s.stale.Load() }

// damaged notes that something in the file cannot be served.
func (s *Store) damaged(err error) {
	s.mu.Lock()
	first := s.broken == nil
	s.broken = err
	if first {
		close(s.brokenCh)
	}
	s.mu.Unlock()
	switch {
	case first && s.viewed:
		s.tellClaim(err)
	case first:
		s.db.log().Error(err, "Damage found, the source will be read anew", "source", s.source.String(), "file", s.db.path)
	}
}

// Err is why some of the source cannot be served, nil if all of it can.
func (s *Store) Err() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.broken
}

// Damaged is closed once Err is no longer nil. A source that has been read
// anew has another channel.
func (s *Claimed) Damaged() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.brokenCh
}

// Outdated says why what the file holds must be read anew before it is served,
// unless the claim says ServeOutdated: the objects' Go type or the transform
// has changed. "" when it need not be.
func (s *Store) Outdated() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.outdated(s.meta)
}

func (s *Store) outdated(m *sourceMeta) string {
	switch {
	case m.Generation == 0:
		return ""
	case m.TypeHash != s.type_:
		return OutdatedType
	case m.Transform != s.transform:
		return OutdatedTransform
	}
	return ""
}

package boltstore

import (
	"maps"
	"time"
)

// State is the state of a source, as the file has it. It is one type because all of it is
// of one commit.
type State struct {
	Source          Source   `json:"source"`
	ClusterUID      string   `json:"clusterUID,omitempty"`
	Server          string   `json:"server,omitempty"`
	ServerCA        string   `json:"serverCA,omitempty"` // hash of the key at the root of its certificates
	Kind            string   `json:"kind"`
	APIVersion      string   `json:"apiVersion"`
	Namespaced      bool     `json:"namespaced"`      // Scope is ScopeNamespaced
	Scope           Scope    `json:"scope,omitempty"` // as described, otherwise as the objects show; "" if neither says
	Names           []string `json:"names,omitempty"` // see Description
	Categories      []string `json:"categories,omitempty"`
	Columns         []Column `json:"columns,omitempty"`
	Timeline        uint64   `json:"timeline"`
	Synced          bool     `json:"synced"` // it was listed whole once; whether it is current is what Confirmed says
	ResourceVersion string   `json:"resourceVersion"`
	// NewestPage is set while objects may be newer than ResourceVersion, up to NewestPage: the
	// pages of a list have been stored, and the list has not ended or the watch has not come up
	// with them.
	NewestPage string `json:"newestPage,omitempty"`
	// Confirmed is when the server last confirmed the state, by the device's clock at
	// that time. ConfirmedAge is how long before the State was taken, nil if unknown; see
	// Options.TrustClock.
	Confirmed    time.Time      `json:"confirmed"`
	ConfirmedAge *time.Duration `json:"confirmedAgeNanoseconds,omitempty"`
	// Compared is when all objects were last compared with a list of the server's, be it of
	// whole objects or of their metadata. Differed counts the objects that an audit or a
	// disproof showed otherwise, and repaired, although the watch had passed their version;
	// and those that were gone. ComparedAge is like
	// ConfirmedAge.
	Compared    time.Time      `json:"compared,omitzero"`
	ComparedAge *time.Duration `json:"comparedAgeNanoseconds,omitempty"`
	Differed    uint64         `json:"differed,omitempty"`
	// Claimed is when a program last used the source, to the hour. If the clock may have
	// been wrong then, it may be a later time at which the clock was right. ClaimedAge is
	// like ConfirmedAge.
	Claimed      time.Time      `json:"claimed"`
	ClaimedAge   *time.Duration `json:"claimedAgeNanoseconds,omitempty"`
	Objects      uint64         `json:"objects"`
	Bytes        uint64         `json:"bytes"`
	Seq          uint64         `json:"seq"`  // of the last journal entry
	Told         uint64         `json:"told"` // the told mark: plain handlers have been told up to it
	JournalBytes uint64         `json:"journalBytes"`
	Indices      []string       `json:"indices,omitempty"`
	Degraded     string         `json:"degraded,omitempty"`
	// Unstored counts objects that could not be transformed, keyed or encoded as the
	// server showed them. They are read again. UnstoredReason says why the last one
	// failed. Unindexed counts the values that objects lack in indices since an index
	// function failed on them.
	Unstored       uint64 `json:"unstored,omitempty"`
	UnstoredReason string `json:"unstoredReason,omitempty"`
	Unindexed      uint64 `json:"unindexed,omitempty"`
	// LacksFields says why fields of the server's objects are not in the file: when they
	// were last listed, the server was newer than the k8s.io/api of the program.
	LacksFields string `json:"lacksFields,omitempty"`
	// Outdated says why the claim does not use the objects in the file; see
	// [Store.Outdated]. Reindexed is how often the claim has indexed the objects again,
	// by index. Both are known only while the source is claimed.
	Outdated  string            `json:"outdated,omitempty"`
	Reindexed map[string]uint64 `json:"reindexed,omitempty"`
	// InMemory says whether reads come from memory, see [Options.ObjectMemory].
	// ObjectMemory is about how much memory the objects take, in bytes. Both are known
	// only while the source is claimed.
	InMemory     bool   `json:"inMemory,omitempty"`
	ObjectMemory uint64 `json:"objectMemoryBytes,omitempty"`
	// InUse says whether a program has claimed the source. Only [DB.States] of that
	// program knows.
	InUse bool `json:"inUse,omitempty"`
	// Handlers are the durable handlers. Only [DB.States] fills them; see also
	// [Store.Handlers].
	Handlers []HandlerState `json:"handlers,omitempty"`
}

// State returns the source's state as of the newest commit. If a store of [DB.View] cannot
// read it, State returns that of when View was called. Such a store has Confirmed as
// [DB.States] has it.
func (s *Store) State() State {
	if s.life.viewed {
		st := s.newestMeta().state(s.db.device)
		s.db.claims.confirmedSince(&st, s.db.opts.Clock.Now())
		return st
	}
	inMemory, size := s.memory.size()
	s.mu.RLock()
	defer s.mu.RUnlock()
	st := s.meta.state(s.db.device)
	s.comparedSince(&st)
	st.Outdated = s.form.reason(s.meta)
	st.Reindexed = maps.Clone(s.builder.counted)
	st.InMemory, st.ObjectMemory = inMemory, size
	return st
}

// newestMeta is the meta of the newest commit. A view's own meta is that of when View was
// called.
func (s *source) newestMeta() *sourceMeta {
	m := s.metaNow()
	if s.life.viewed {
		// otherwise it is the last one known
		_ = s.view(func(now *sourceMeta, _ sourceTx) error { m = now; return nil })
	}
	return m
}

// health is whether all of a source can be served.
type health struct {
	s   *source
	err error         // why a part cannot be, under s.mu
	ch  chan struct{} // closed while err is not nil, under s.mu
}

// meet notes that something in the file cannot be served. If a list has replaced it since
// it was read, there will be another list.
func (hl *health) meet(err error) {
	hl.s.mu.Lock()
	m, w := hl.s.meta, &hl.s.writer
	own := m != nil && !hl.s.life.viewed && !w.expectant && w.producer == nil && !m.everListed()
	first := hl.err == nil
	hl.err = err
	if first {
		close(hl.ch)
	}
	hl.s.mu.Unlock()
	ended := hl.s.db.h.met() != nil // memory stays as the last commit left it
	if !ended {
		hl.s.memory.forget()
	}
	switch {
	case ended: // it is said of the file
	case first && hl.s.life.viewed:
		claim := hl.s.db.claims.find(hl.s.id) // only the claim can have the source read again
		if claim != nil && !hl.s.coder.guessed && claim.form.typeHash == hl.s.form.typeHash &&
			claim.coder.codec.ID() == hl.s.coder.codec.ID() {
			claim.health.meet(err)
		}
	case first && own:
		hl.s.db.log().Error(err, "Damage found, some objects that the program has stored cannot be read", "source",
			hl.s.name.String(), "file", hl.s.db.path)
	case first:
		hl.s.db.log().Error(err, "Damage found, the source will be read from the server again", "source",
			hl.s.name.String(), "file", hl.s.db.path)
	}
}

// Err says why a part of the source cannot be served, nil if all of it can.
func (s *source) Err() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.health.err
}

// Damaged is closed once Err is not nil. After a relist has healed the source, Damaged
// returns another channel.
func (s Upstream) Damaged() <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.health.ch
}

// Reasons that [Store.Outdated] gives. A relist replaces the objects.
const (
	OutdatedType      = "the objects' Go type has changed"
	OutdatedTransform = "the transform has changed"
)

// Outdated says why the source must be listed before its objects are served: their Go
// type or the transform has changed. "" means that it need not be listed.
// Claim.ServeOutdated serves the objects until then. A source that a program fills itself
// is not listed: its contents are removed with the next write.
func (s *source) Outdated() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.form.reason(s.meta)
}

func (f *form) reason(m *sourceMeta) string {
	switch {
	case m.Contents == contentsNone:
		return ""
	case m.TypeHash != f.typeHash:
		return OutdatedType
	case m.Transform != f.transform:
		return OutdatedTransform
	}
	return ""
}

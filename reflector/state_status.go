package reflector

import (
	"maps"
	"sync"
	"time"
)

// status is the part of State about this life.
type status struct {
	mu       sync.Mutex
	state    State
	resuming bool // a watch goes on from the file next, as after a list that the file answers
	// uncompared: no list has been compared with the file since the link was last in doubt,
	// and none is under way.
	uncompared bool
}

// enter notes the phase, and says whether it is another one. doubted is when the
// link last came into doubt: a phase that is entered again after that is new.
func (s *status) enter(p Phase, reason string, now, doubted time.Time) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = s.state.Phase != p || s.state.Reason != reason
	if changed || s.state.Since.Before(doubted) {
		s.state.Phase, s.state.Reason, s.state.Since = p, reason, now
	}
	return changed
}

// resumes: the next watch goes on from the file, unless a list comes before it.
func (s *status) resumes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resuming = true
}

// resumed counts that a watch has gone on from the file.
func (s *status) resumed(bytes func() uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resuming {
		s.resuming = false
		s.state.Resumes++
		s.state.BytesSaved += bytes()
	}
}

// setUncompared notes whether nothing compares the file with a list.
func (s *status) setUncompared(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uncompared = yes
}

func (s *status) isUncompared() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uncompared
}

// relisted counts a relist.
func (s *status) relisted(reason string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Relists == nil {
		s.state.Relists = map[string]uint64{}
	}
	s.state.Relists[reason]++
	s.uncompared, s.resuming = false, false
	s.state.LastRelist, s.state.LastRelistAt = reason, now
	s.state.Listed, s.state.Remaining = 0, nil
}

// listed notes how far a list has come.
func (s *status) listed(objects int, remaining *int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Listed, s.state.Remaining = uint64(objects), remaining
}

// hasRelisted says whether this life has read everything.
func (s *status) hasRelisted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.state.Relists) > 0
}

// get returns a copy.
func (s *status) get() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.state
	if st.Relists = maps.Clone(st.Relists); st.Relists == nil {
		st.Relists = map[string]uint64{}
	}
	return st
}

// State says what the source is doing and has done.
func (s *Reflector) State() State {
	st := s.status.get()
	if (st.Phase == PhaseLive || st.Phase == PhaseCatchingUp) && !s.link.is(linkStated) { // nothing is being watched
		st.Phase, st.Since = PhaseConnecting, s.link.doubtedAt()
	}
	st.taken = s.clock.Now()
	if st.Confirmed = s.queue.Confirmed(); st.Confirmed.IsZero() {
		file := s.store.State()
		st.Confirmed, st.age = file.Confirmed, file.ConfirmedAge
	} else if age, ok := s.queue.Age(st.taken); ok {
		st.age = &age
	}
	st.ResourceVersion = s.queue.AcceptedVersion()
	n, err := s.queue.Failed()
	file := s.store.State()
	st.Compared, st.Differed = file.Compared, file.Differed
	st.Uncompared = s.status.isUncompared() && (st.Phase == PhaseLive || st.Phase == PhaseCatchingUp)
	st.Failed, st.Unstored, st.Unindexed = n, file.Unstored, file.Unindexed
	switch broken := s.store.Err(); {
	case err != nil:
		st.Degraded = err.Error()
	case file.Unstored > 0:
		st.Degraded = file.UnstoredReason
	case broken != nil:
		st.Degraded = broken.Error()
	}
	return st
}

// enter enters a phase, and reports it if it is another one.
func (s *Reflector) enter(p Phase, reason string) {
	if !s.status.enter(p, reason, s.clock.Now(), s.link.doubtedAt()) {
		return
	}
	s.log.V(1).Info("Source "+string(p), "source", s.store.Source().String(), "reason", reason, "resourceVersion",
		s.queue.AcceptedVersion())
	if s.o.OnState != nil {
		s.o.OnState(s.State())
	}
}

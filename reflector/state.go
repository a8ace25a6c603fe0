package reflector

import (
	"fmt"
	"time"
)

// Phase is what a source is doing.
type Phase string

// The phases of a source.
const (
	Starting   Phase = "starting"    // nothing has been tried yet
	Offline    Phase = "offline"     // the server cannot be reached
	Denied     Phase = "denied"      // the server refuses access
	Relisting  Phase = "relisting"   // reading all pages
	CatchingUp Phase = "catching up" // watching, behind what the server last stated
	Live       Phase = "live"        // watching, at or past what the server last stated
)

// State is what a source is doing and has done in this life of the process.
type State struct {
	Phase Phase `json:"phase"`
	// Reason: of the last relist, or why the source is offline or denied.
	Reason string `json:"reason,omitempty"`
	// Since is when the phase began.
	Since time.Time `json:"since"`
	// Confirmed is when the server last confirmed what is cached.
	Confirmed time.Time `json:"confirmed"`
	// Resumes counts lists answered from the file, Relists those read from the
	// server, for each reason.
	Resumes uint64            `json:"resumes"`
	Relists map[string]uint64 `json:"relists,omitempty"`
}

// Reasons of a relist.
const (
	ReasonFirst    = "first sync"
	ReasonExpired  = "version expired"
	ReasonRestored = "server restored to an earlier state"
	ReasonDamaged  = "damage in the file"
	ReasonCluster  = "another cluster"
	// The server sends no bookmarks, and nothing else confirms the state.
	ReasonUnconfirmed = "no bookmarks"
)

// State returns a copy.
func (s *Source) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.state
	st.Relists = map[string]uint64{}
	for k, v := range s.state.Relists {
		st.Relists[k] = v
	}
	st.Confirmed = s.journal.Confirmed()
	if st.Confirmed.IsZero() {
		st.Confirmed = s.store.State().Confirmed
	}
	return st
}

func (s *Source) enter(p Phase, reason string) {
	s.mu.Lock()
	changed := s.state.Phase != p || s.state.Reason != reason
	if changed {
		s.state.Phase, s.state.Reason, s.state.Since = p, reason, s.o.Clock.Now()
	}
	if p == Relisting {
		if s.state.Relists == nil {
			s.state.Relists = map[string]uint64{}
		}
		s.state.Relists[reason]++
	}
	s.mu.Unlock()
	if !changed {
		return
	}
	rv := s.journal.Accepted()
	s.o.Logger.V(1).Info("Source "+string(p), "source", s.store.Source().String(), "reason", reason, "resourceVersion", rv)
	if s.o.OnState != nil {
		s.o.OnState(s.State())
	}
}

// String is one line for a person.
func (s State) String() string {
	if s.Reason == "" {
		return string(s.Phase)
	}
	return fmt.Sprintf("%s (%s)", s.Phase, s.Reason)
}

package main

import (
	"io"
	"sync"
)

// spool passes its input on as fast as w takes it, and keeps up to spoolBytes of the rest
// in memory. So a reader of a file need not wait for a pager, which may stand for hours. In
// that time a mirror may take the file.
type spool struct {
	w     io.Writer
	mu    sync.Mutex
	more  *sync.Cond // held, ended or err has changed
	held  []byte
	ended bool
	err   error
	told  bool // err was returned
	done  chan struct{}
}

// spoolBytes is how much a spool keeps in memory. A writer of more waits.
const spoolBytes = 64 << 20

func newSpool(w io.Writer) *spool {
	s := &spool{w: w, done: make(chan struct{})}
	s.more = sync.NewCond(&s.mu)
	go s.pass()
	return s
}

// pass passes the input on, until an error or the end.
func (s *spool) pass() {
	defer close(s.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil {
		for len(s.held) == 0 && !s.ended {
			s.more.Wait()
		}
		if len(s.held) == 0 {
			return
		}
		part := s.held
		s.held = nil
		s.more.Broadcast()
		s.mu.Unlock()
		_, err := s.w.Write(part)
		s.mu.Lock()
		s.err = err
	}
	s.held = nil
	s.more.Broadcast()
}

// Write returns the error of an earlier write, if there was one.
func (s *spool) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && len(s.held) >= spoolBytes {
		s.more.Wait()
	}
	if s.err != nil {
		s.told = true
		return 0, s.err
	}
	s.held = append(s.held, b...)
	s.more.Broadcast()
	return len(b), nil
}

// Close waits until everything has been taken. It returns an error if no Write has
// returned it.
func (s *spool) Close() error {
	s.mu.Lock()
	s.ended = true
	s.more.Broadcast()
	s.mu.Unlock()
	<-s.done
	if s.told {
		return nil
	}
	return s.err
}

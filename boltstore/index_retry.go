package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
)

// Failed index functions are called again after a wait, which doubles as long as any of
// them fails.
const (
	firstReindex = time.Second
	mostReindex  = 10 * time.Minute
)

// noteReindexed updates the note of a key after its index functions were called.
func (a *applier) noteReindexed(k []byte, key string, c reindexed) error {
	old := a.noteOf(k)
	if old == nil && len(c.failed) == 0 {
		return nil
	}
	n := &note{Key: key}
	if old != nil {
		*n = *old
	}
	n.Indices = slices.DeleteFunc(slices.Clone(n.Indices), func(name string) bool { return slices.Contains(c.done, name) })
	if n.Indices = append(n.Indices, c.failed...); len(c.failed) > 0 {
		n.Time = a.now
		if !n.Unstored {
			n.Why = c.why
		}
	}
	slices.Sort(n.Indices)
	return a.in.notes.put(a.m, k, n, old)
}

// reindexNoted calls index functions again for the objects on which they failed. An index
// that the program does not use becomes incomplete instead: it is built when a program
// adds it.
func (s indexing) reindexNoted() error {
	if s.metaNow().Noted.Unindexed == 0 {
		return nil
	}
	s.indexLock.Lock()
	defer s.indexLock.Unlock()
	if s.unreadable(s.metaNow()) {
		return nil // the next relist indexes all objects
	}
	for from := []byte(nil); ; {
		raws, noted, next, err := s.notedPage(from, 500)
		if err != nil {
			return fmt.Errorf("boltstore: index %s again: %w", s.source, err)
		}
		changed, forget, err := s.againValues(raws, noted)
		if err == nil && len(changed) > 0 {
			err = s.noteMeta(func(src sourceTx, m *sourceMeta) error {
				for _, name := range forget {
					m.doubtIndex(name)
				}
				return s.rewrite(src, m, changed)
			})
		}
		if err != nil {
			return fmt.Errorf("boltstore: index %s again: %w", s.source, err)
		}
		if from = next; from == nil {
			return nil
		}
	}
}

// notedPage copies records that lack values of indices out of the file. noted has these
// indices by item key.
func (s indexing) notedPage(from []byte, most int) (raws []layout.Raw, noted map[string][]string, next []byte, err error) {
	err = s.view(func(_ *sourceMeta, src sourceTx) error {
		raws, noted = nil, map[string][]string{}
		g := src.contents()
		ns, at, err := g.notes.page(from, most, s.damaged)
		next = at
		for _, n := range ns {
			k := index.AppendKey(nil, n.Key)
			if r, ok := g.Items.Find(k); ok && len(n.Indices) > 0 {
				raws = append(raws, layout.Raw{Key: k, Stored: bytes.Clone(r.Open())})
				noted[string(k)] = n.Indices
			}
		}
		return err
	})
	return raws, noted, next, err
}

// againValues is newValues for each record's noted indices. forget has those without a
// function.
func (s indexing) againValues(raws []layout.Raw, noted map[string][]string) (changed map[string]reindexed, forget []string, err error) {
	fns := s.indexSet().fns
	changed = map[string]reindexed{}
	for _, r := range raws {
		k := string(r.Key)
		build := cache.Indexers{}
		var gone []string
		for _, name := range noted[k] {
			if fn := fns[name]; fn != nil {
				build[name] = fn
			} else {
				gone = append(gone, name)
			}
		}
		one, err := s.newValues([]layout.Raw{r}, build, noted)
		if err != nil {
			return nil, nil, err
		}
		if c, ok := one[k]; ok && len(c.failed) < len(noted[k]) { // otherwise nothing has changed
			c.done = append(c.done, gone...)
			changed[k] = c
			forget = append(forget, gone...)
		}
	}
	return changed, forget, nil
}

// retryIndices starts a goroutine that calls failed index functions again until none is
// left or the store is released. The caller holds s.mu.
func (s indexing) retryIndices() {
	if s.retrying || s.viewed || s.meta == nil || s.meta.Noted.Unindexed == 0 || s.ending() {
		return
	}
	s.retrying = true
	s.retriers.Go(func() {
		for wait := firstReindex; ; wait = min(2*wait, mostReindex) {
			if !s.pause(wait) {
				return
			}
			if err := s.reindexNoted(); err != nil && !errors.Is(err, ErrClosed) {
				s.db.log().Error(err, "Objects could not be indexed again", "source", s.source.String())
				wait = min(wait, triedAgain/4) // so that DB.Err shows it until it is written
			}
			s.mu.Lock()
			done := s.meta.Noted.Unindexed == 0
			s.retrying = !done
			s.mu.Unlock()
			if done {
				return
			}
		}
	})
}

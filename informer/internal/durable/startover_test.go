package durable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// TestPhases: each phase of a start-over and each transition, as the table in
// docs/design/handlers.md has them.
func TestPhases(t *testing.T) {
	transitions := map[string]func(*startOver){
		"load": func(s *startOver) { s.load(true) }, "ask": (*startOver).ask, "begin": (*startOver).begin,
		"report": func(s *startOver) { s.report() }, "commit": func(s *startOver) { s.commit() }, "tell": func(s *startOver) { s.tell() },
		"acknowledge": (*startOver).acknowledge,
	}
	for from, leads := range map[phase]map[string]phase{
		phaseTelling: {"load": phaseWritten, "ask": phaseAsked, "begin": phaseDue},
		phaseAsked:   {"begin": phaseDue},
		phaseDue:     {"report": phaseWriting},
		phaseWriting: {"ask": phaseAsked, "begin": phaseDue, "commit": phaseWritten},
		phaseWritten: {"ask": phaseAsked, "begin": phaseDue, "tell": phaseTold},
		phaseTold:    {"ask": phaseAsked, "begin": phaseDue, "acknowledge": phaseTelling},
	} {
		for name, do := range transitions {
			if name == "load" && from != phaseTelling {
				continue // a life begins telling
			}
			want, leaves := leads[name]
			if !leaves {
				want = from
			}
			s := startOver{phase: from}
			if do(&s); s.phase != want {
				t.Errorf("%s: %s leads to %s, want %s", from, name, s.phase, want)
			}
		}
	}
}

// midReplay is a handler that has acknowledged the first page of three, and has one entry
// to take in before the second. broken says that this entry's block is lost.
func midReplay(t *testing.T, broken bool) *standing {
	t.Helper()
	const n = 2*pageObjects + 1
	path := filepath.Join(t.TempDir(), "wake.db")
	s := stand(t, path, boltstore.Options{})
	for i := range n {
		s.change(cache.Added, fmt.Sprint("o", i))
	}
	s.flush()
	s.end()

	s = stand(t, path, boltstore.Options{})
	s.rv = n
	s.fillUntil(func() bool { return s.d.replay.begun })
	s.ackAll()
	at := s.d.pos.cursor
	s.change(cache.Added, "new")
	s.flush()
	s.end()
	if broken {
		inSource(t, path, func(src *bolt.Bucket) error {
			return src.Bucket([]byte("journal")).Delete(binary.BigEndian.AppendUint64(nil, at+1))
		})
	}
	s = stand(t, path, boltstore.Options{})
	if !s.d.replay.begun || s.d.pos.cursor != at || len(s.d.replay.shown) > 0 {
		t.Fatalf("at %d of %d, %+v", s.d.pos.cursor, at, s.d.replay)
	}
	return s
}

// TestNoPageWithReset: if damaged entries had to be told before a page of the replay, the
// page is not told beside the Reset.
func TestNoPageWithReset(t *testing.T) {
	s := midReplay(t, true)
	d := s.d
	for i := 0; i < 20 && d.fill(); i++ {
	}
	d.mu.Lock()
	if !d.startingOver.owed() || len(d.queues.ofKey) > 1 || d.replay.begun {
		t.Errorf("%s, %d keys, replay %+v", d.startingOver.phase, len(d.queues.ofKey), d.replay)
	}
	d.mu.Unlock()
	s.end()
}

// TestPageFromBeforeReset: a page that was read before the handler had to start over is
// not the first one told afterwards.
func TestPageFromBeforeReset(t *testing.T) {
	s := midReplay(t, false)
	d := s.d
	d.Lost()
	d.fillReplay()
	d.mu.Lock()
	if d.startingOver.count == 0 || d.replay.begun || len(d.queues.ofKey) > 0 {
		t.Errorf("started over %d times, %d keys, replay %+v", d.startingOver.count, len(d.queues.ofKey), d.replay)
	}
	d.mu.Unlock()
	s.end()
}

// TestResetIsWrittenBeforeItIsTold: damage that only the handler has met may be gone
// after a crash, but the effects of its Reset are not.
func TestResetIsWrittenBeforeItIsTold(t *testing.T) {
	s := stand(t, filepath.Join(t.TempDir(), "wake.db"), boltstore.Options{})
	d := s.d
	s.change(cache.Added, "a")
	s.flush()
	d.damaged(errors.New("a page was not what it should be"))
	eventually(t, "told to start over", func() bool {
		d.fill()
		hs, err := s.store.Handlers()
		if err != nil {
			t.Fatal(err)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.startingOver.phase == phaseTold && !hs[0].Reset {
			t.Fatal("a crash would make it forget what it is told")
		}
		return d.startingOver.phase == phaseTold
	})
	s.ackAll()
	s.fillUntil(func() bool { return len(s.d.queues.ofKey) > 0 })
	if len(d.queues.ofKey) != 1 {
		t.Errorf("%d objects are shown", len(d.queues.ofKey))
	}
	s.end()
}

package boltstore

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// asked is a producer without changes. It notes how many bytes the first commit asks it for
// once it is told to.
type asked struct {
	mu    sync.Mutex
	notes bool
	most  int
}

func (p *asked) Take(most int, _ bool) (*Batch, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.notes {
		p.notes, p.most = false, most
	}
	return nil, false
}

func (p *asked) Committed([]*Entry) {}

// TestWritesLeaveRoom: however many own writes wait, about half of a commit is for the server's
// changes.
func TestWritesLeaveRoom(t *testing.T) {
	const most = 64 << 10
	db := openTest(t, testPath(t), Options{Durability: DurabilityProcess, maxCommitBytes: most})
	s, p := claimTest(t, db, Claim{}), &asked{}
	s.Attach(p)
	began, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	db.h.setHook(func(*bolt.Tx) error {
		once.Do(func() { close(began); <-goOn })
		return nil
	})
	var writers sync.WaitGroup
	write := func(name string, size int) {
		writers.Go(func() {
			if err := s.Add(configMap("own", name, 1, map[string]string{"a": strings.Repeat("x", size)})); err != nil {
				t.Error(err)
			}
		})
	}
	write("first", 1)
	<-began
	for i := range 50 {
		write(fmt.Sprint("o", i), 4<<10)
	}
	eventually(t, "they wait", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.queue) == 50
	})
	p.mu.Lock()
	p.notes = true
	p.mu.Unlock()
	close(goOn)
	writers.Wait()
	if p.most < most/4 || p.most > most/2 {
		t.Errorf("a commit with waiting writes asks for %d bytes of changes, of %d", p.most, most)
	}
}

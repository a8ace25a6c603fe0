package boltstore

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestHandlersEndTogether: handlers that end at the same time share a transaction. The file
// has what each of them has acknowledged.
func TestHandlersEndTogether(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond, FlushInterval: time.Hour})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Attach(p)
	var hs []*Handler
	var positions []*testPosition
	for i := range 50 {
		h, pos := claimHandler(t, s, fmt.Sprint("h", i))
		hs, positions = append(hs, h), append(positions, pos)
	}
	for i := range 3 {
		p.add(t, s, configMap("a", "one", i+1, nil))
		p.wait(t)
	}
	for i, pos := range positions {
		pos.set(func(p *Position) { p.Cursor, p.Replaying = uint64(i%3+1), false })
		hs[i].Changed()
	}
	before := transactions(t, db)
	var wg sync.WaitGroup
	for _, h := range hs {
		wg.Go(func() {
			if err := h.Release(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := transactions(t, db) - before; n != 1 {
		t.Errorf("%d transactions", n)
	}
	states, err := s.Handlers()
	must(t, err)
	for _, st := range states {
		var i uint64
		if _, err := fmt.Sscanf(st.Name, "h%d", &i); err != nil || st.Mark != i%3+1 {
			t.Errorf("%s: %d %v", st.Name, st.Mark, err)
		}
	}
}

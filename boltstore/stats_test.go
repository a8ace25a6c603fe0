package boltstore

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/internal/waittest"
)

var eventually = waittest.Eventually

// TestStats: a DB counts its transactions, the changes in them and the bytes written, and
// reports them even after Close.
func TestStats(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Millisecond, ObjectMemory: 1 << 20})
	if st := db.Stats(); st.Changes.Count() != 0 || st.Failed != 0 || st.Failing != 0 || st.Writing != 0 ||
		st.ObjectMemoryLimit != 1<<20 {
		t.Errorf("a new file: %+v", st)
	}
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	before := db.Stats()
	p.add(t, s, configMap("a", "one", 1, nil), configMap("a", "two", 2, nil), configMap("a", "three", 3, nil),
		configMap("a", "four", 4, nil))
	p.wait(t)
	p.add(t, s, configMap("a", "five", 5, nil))
	p.wait(t)
	st := db.Stats()
	if n := st.Changes.Count(); n != 2 || st.Changes.Sum != 5 || st.Changes.Counts[0] != 1 ||
		st.Changes.Counts[2] != 1 {
		t.Errorf("2 commits of 4 changes and one: %+v", st.Changes)
	}
	if st.ChangeBytes.Count() != 2 || st.ChangeBytes.Sum < 5*100 {
		t.Errorf("their size: %+v", st.ChangeBytes)
	}
	if n := st.Transactions.Count() - before.Transactions.Count(); n < 2 ||
		st.Transactions.Sum <= before.Transactions.Sum {
		t.Errorf("%d transactions: %+v", n, st.Transactions)
	}
	if n, page := st.Written-before.Written, uint64(db.h.now.Load().Info().PageSize); n < 4*page || n%page != 0 {
		t.Errorf("%d bytes written", n)
	}
	eventually(t, "in memory", func() bool { return db.Stats().ObjectMemory > 0 })
	s.Release()
	closeTest(t, db)
	if after := db.Stats(); after.Changes.Sum != 5 || after.Written < st.Written || after.ObjectMemory != 0 {
		t.Errorf("after Close: %+v", after)
	}
	view := openTest(t, db.path, Options{ReadOnly: true})
	if st := view.Stats(); st.Transactions.Count() != 0 || st.Failing != 0 {
		t.Errorf("of a view: %+v", st)
	}
}

// TestStatsOfAFailingDisk: Stats says how long commits have failed, and how long one has
// taken.
func TestStatsOfAFailingDisk(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	db := openTest(t, testPath(t), Options{Window: time.Millisecond, Clock: clk})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	var full atomic.Bool
	tried, goOn := make(chan struct{}, 100), make(chan struct{})
	db.h.writeMu.Lock()
	db.h.hook = func(*bolt.Tx) error {
		tried <- struct{}{}
		<-goOn
		if full.Load() {
			return errors.New("no space left on device")
		}
		return nil
	}
	db.h.writeMu.Unlock()

	full.Store(true)
	p.add(t, s, configMap("a", "one", 1, nil))
	<-tried
	clk.Step(3 * time.Second)
	if st := db.Stats(); st.Writing != 3*time.Second || st.Failing != 0 || st.Failed != 0 {
		t.Errorf("while the disk hangs: %+v", st)
	}
	goOn <- struct{}{}
	eventually(t, "noticed", func() bool { return db.Stats().Failing > 0 })
	clk.Step(time.Minute) // and the retry is due
	<-tried
	if st := db.Stats(); st.Failing < time.Minute || st.Failed != 1 ||
		st.Transactions.Counts[len(st.Transactions.Counts)-1] != 0 {
		t.Errorf("while the disk fails: %+v", st)
	}
	full.Store(false)
	close(goOn)
	p.wait(t)
	eventually(t, "well again", func() bool { return db.Stats().Failing == 0 })
	if st := db.Stats(); st.Failed != 1 || st.Writing != 0 || st.Changes.Sum != 1 {
		t.Errorf("afterwards: %+v", st)
	}
}

// TestHistogram: each observation is in the bucket whose bound it does not exceed.
func TestHistogram(t *testing.T) {
	h := Histogram{Bounds: []float64{1, 10}}
	for _, v := range []float64{0, 1, 1.5, 10, 11, 1e9} {
		h.observe(v)
	}
	if got := fmt.Sprint(h.Counts, h.Count(), h.Sum); got != fmt.Sprint([]uint64{2, 2, 2}, 6, 1e9+23.5) {
		t.Error(got)
	}
	if got := (Histogram{Bounds: []float64{1}}).clone(); got.Count() != 0 || len(got.Counts) != 2 {
		t.Errorf("%+v", got)
	}
}

func BenchmarkCounters(b *testing.B) {
	c := newCounters(testingclock.NewFakeClock(time.Unix(1e9, 0)))
	db, err := bolt.Open(b.TempDir()+"/f", 0o600, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Begin(false)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		c.end(c.begin(), tx, nil)
		c.committed(3, 1000)
	}
	if err := tx.Rollback(); err != nil {
		b.Fatal(err)
	}
}

package boltstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	berrors "go.etcd.io/bbolt/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/internal/waittest"
)

// TestHistoryGivesWay: in a file that may not grow, the oldest history goes before a commit or
// a relist is refused, but none that handlers have not been told. Then the error names the
// bounds of the file and of history.
func TestHistoryGivesWay(t *testing.T) {
	random := rand.NewChaCha8([32]byte{})
	sized := func(name string, version, kb int) *corev1.ConfigMap {
		b := make([]byte, kb<<9) // in hex twice as many, of which the journal can pack away half
		_, _ = random.Read(b)    // it never fails
		return configMap("ns", name, version, map[string]string{"k": fmt.Sprintf("%x", b)})
	}
	const most = 4 << 20
	begin := func(t *testing.T) (*DB, *Claimed, *testProducer) {
		db := openTest(t, testPath(t), Options{Window: time.Nanosecond, MaxSize: most})
		s := claimTest(t, db, Claim{Indexers: indexers})
		relist(t, s, "1", RelistOptions{}, []runtime.Object{sized("a", 1, 100)}, 10)
		p := &testProducer{}
		s.Feed.Attach(p)
		return db, s, p
	}
	sound := func(t *testing.T, db *DB) {
		t.Helper()
		if r, err := db.Check(); err != nil || !r.Sound() {
			t.Errorf("%+v %v", r, err)
		}
		if size := db.Size(); size > most {
			t.Errorf("the file has %d bytes", size)
		}
	}
	t.Run("told", func(t *testing.T) {
		db, s, p := begin(t)
		for v := 2; v < 300; v++ { // 15 MB of history
			p.add(t, s, sized("a", v, 100))
			p.wait(t)
			s.Delivery.SetTold(s.State().Seq)
		}
		if st := s.State(); st.JournalBytes < most/8 || st.Seq < 290 || db.Stats().Failed > 0 && db.Err() != nil {
			t.Errorf("%+v %v", st, db.Err())
		}
		sound(t, db)
	})
	aRelist := func(t *testing.T, staged bool) {
		db, s, p := begin(t)
		for v := 2; s.State().JournalBytes < most/2; v++ {
			p.add(t, s, sized("a", v, 100))
			p.wait(t)
			s.Delivery.SetTold(s.State().Seq)
		}
		if staged {
			setMaxCommitBytes(db, 1)
		}
		objs := []runtime.Object{sized("a", 1000, 100)}
		for i := range 10 {
			objs = append(objs, sized(fmt.Sprint("b", i), 1001+i, 100))
		}
		relist(t, s, "2000", RelistOptions{}, objs, 2)
		if got := len(s.List()); got != 11 || db.Err() != nil {
			t.Errorf("%d objects, %v", got, db.Err())
		}
		sound(t, db)
	}
	t.Run("a relist", func(t *testing.T) { aRelist(t, false) })
	t.Run("a staged relist", func(t *testing.T) { aRelist(t, true) })
	t.Run("untold", func(t *testing.T) {
		db, s, p := begin(t)
		s.Delivery.AddsPlain()
		for v := 2; v < 300 && db.Err() == nil; v++ {
			p.add(t, s, sized("a", v, 100))
			waittest.Eventually(t, "it is tried", func() bool {
				return s.State().ResourceVersion == fmt.Sprint(v) || db.Err() != nil
			})
		}
		err := db.Err()
		if !errors.Is(err, berrors.ErrMaxSizeReached) || !strings.Contains(err.Error(), "--max-size") ||
			!strings.Contains(err.Error(), "--journal-bytes") {
			t.Error(err)
		}
		if st := s.State(); st.JournalBytes < most/4 {
			t.Errorf("untold history is gone: %+v", st)
		}
		s.Delivery.SetTold(s.State().Seq)
		waittest.Eventually(t, "history gives way", func() bool { return db.Err() == nil })
		sound(t, db)
	})
}

package boltstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/internal/listing"
)

// TestErrOfARelist: while the writes of a relist fail, Err says why, and Stats since
// when, even if other commits succeed, and between two attempts. They stop saying so when
// a write of the relist succeeds, when there are no more attempts, or when the source has
// ended.
func TestErrOfARelist(t *testing.T) {
	for _, how := range []string{"goes on", "begins again", "is given up", "ends"} {
		for _, large := range []bool{false, true} {
			t.Run(fmt.Sprint(how, " large ", large), func(t *testing.T) {
				clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
				db := openTest(t, testPath(t), Options{Clock: clk})
				s := claimTest(t, db, Claim{})
				relist(t, s, "1", RelistOptions{}, []runtime.Object{configMap("ns", "a", 1, nil)}, 10)
				src := s.name
				src.Namespace = "other"
				other := claimTest(t, db, Claim{Source: src})
				if large {
					setMaxCommitBytes(db, 1)
				}
				begin := func() (*Relist, error) {
					r, err := s.Upstream.BeginRelist(RelistOptions{})
					must(t, err)
					return r, r.Page([]runtime.Object{configMap("ns", "a", 2, nil), configMap("ns", "b", 3, nil)})
				}
				try := func(r *Relist, err error) error {
					if err == nil {
						_, err = r.Commit("3", clk.Now())
					}
					return err
				}
				fails := func(what string, least time.Duration) {
					t.Helper()
					if err, st := db.Err(), db.Stats(); !errors.Is(err, errRefused) || st.Failing < least ||
						st.Failed == 0 {
						t.Errorf("%s: Err %v, failed %d times, failing for %s", what, err, st.Failed, st.Failing)
					}
				}
				db.h.setHook(func(*bolt.Tx) error { return errRefused })
				r, err := begin()
				if err = try(r, err); !errors.Is(err, errRefused) {
					t.Fatal(err)
				}
				fails("at once", 1)
				clk.Step(time.Minute)
				db.h.setHook(nil)
				must(t, other.Add(configMap("other", "x", 1, nil)))
				fails("beside a commit that succeeds", time.Minute)
				switch how {
				case "goes on":
					_, err = r.Commit("3", clk.Now())
					must(t, err)
				case "begins again":
					db.h.setHook(func(*bolt.Tx) error { return errRefused })
					r, err = begin()
					if err = try(r, err); !errors.Is(err, errRefused) {
						t.Fatal(err)
					}
					fails("the next try", time.Minute)
					db.h.setHook(nil)
					must(t, try(begin()))
				case "is given up":
					fails("aborted", time.Minute)
					clk.Step(5 * time.Minute)
				case "ends":
					s.Release()
				}
				if err, st := db.Err(), db.Stats(); err != nil || st.Failing != 0 {
					t.Errorf("afterwards: Err %v, failing for %s", err, st.Failing)
				}
			})
		}
	}
}

// TestErrOfEmptying: Err also says why the contents of another cluster cannot be set
// aside, which comes before the relist: nothing more is written or confirmed until then.
func TestErrOfEmptying(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	db := openTest(t, testPath(t), Options{Clock: clk})
	s := claimTest(t, db, Claim{})
	relist(t, s, "1", RelistOptions{}, []runtime.Object{configMap("ns", "a", 1, nil)}, 10)
	db.h.setHook(func(*bolt.Tx) error { return errRefused })
	if err := s.Upstream.Empty(); !errors.Is(err, errRefused) {
		t.Fatal(err)
	}
	if err, st := db.Err(), db.Stats(); !errors.Is(err, errRefused) || st.Failing == 0 || st.Failed == 0 {
		t.Errorf("Err %v, failed %d times, failing for %s", err, st.Failed, st.Failing)
	}
	db.h.setHook(nil)
	must(t, s.Upstream.Empty())
	if err, st := db.Err(), db.Stats(); err != nil || st.Failing != 0 {
		t.Errorf("afterwards: Err %v, failing for %s", err, st.Failing)
	}
}

// TestErrOfNotes: Err also says why a note before a relist, a confirmation or a handler's
// first call cannot be written: their callers try again.
func TestErrOfNotes(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	for what, note := range map[string]func(s *Claimed) error{
		"facts": func(s *Claimed) error {
			return s.Upstream.WriteFacts(func(f *listing.Facts) { f.Restored = true })
		},
		"plain":    func(s *Claimed) error { return s.Delivery.ExpectPlain() },
		"progress": func(s *Claimed) error { return s.Upstream.DropPartial() },
	} {
		t.Run(what, func(t *testing.T) {
			db := openTest(t, testPath(t), Options{Clock: clk})
			s := claimTest(t, db, Claim{})
			newFirstList(t, listed(150).list(), 60).attempt(s, 2) // interrupted
			if what != "progress" {
				relist(t, s, "1", RelistOptions{}, []runtime.Object{configMap("ns", "a", 1, nil)}, 10)
				s.Delivery.AddsPlain()
			}
			db.h.setHook(func(*bolt.Tx) error { return errRefused })
			if err := note(s); !errors.Is(err, errRefused) {
				t.Fatal(err)
			}
			if err, st := db.Err(), db.Stats(); !errors.Is(err, errRefused) || st.Failing == 0 || st.Failed == 0 {
				t.Errorf("Err %v, failed %d times, failing for %s", err, st.Failed, st.Failing)
			}
			db.h.setHook(nil)
			must(t, note(s))
			if err, st := db.Err(), db.Stats(); err != nil || st.Failing != 0 {
				t.Errorf("afterwards: Err %v, failing for %s", err, st.Failing)
			}
		})
	}
}

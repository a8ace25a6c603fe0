package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/index"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// contentAt reads a moment in pages of n.
func contentAt(s *Store, at Moment, prefix string, n int) (map[string]string, error) {
	content, from, last := map[string]string{}, []byte(nil), []byte(nil)
	for first := true; first || from != nil; first = false {
		keys, objs, next, err := s.PageAt(at, prefix, from, n)
		if err != nil {
			return nil, err
		}
		for i, key := range keys {
			item := index.AppendKey(nil, key)
			if bytes.Compare(item, last) <= 0 || bytes.Compare(item, from) < 0 || !strings.HasPrefix(key, prefix) {
				return nil, fmt.Errorf("%q after %q, from %q", key, last, from)
			}
			content[key], last = modelText(objs[i].(*corev1.ConfigMap)), item
		}
		from = next
	}
	return content, nil
}

// follower is a reader that goes on from a moment.
type follower struct {
	at      Moment
	content map[string]string
}

// catchUp applies the journal's entries.
func (f *follower) catchUp(s *Store) error {
	for {
		e, err := s.EntriesAfter(f.at)
		if err != nil {
			return err
		}
		for _, entry := range e.Entries {
			switch obj, err := entry.Object(); {
			case entry.Type == cache.Deleted:
				delete(f.content, entry.Key)
			case err != nil:
				return err
			default:
				f.content[entry.Key] = modelText(obj.(*corev1.ConfigMap))
			}
		}
		if f.at = e.Next; len(e.Entries) == 0 {
			return nil
		}
	}
}

// momentsModel checks moments in a storeModel.
type momentsModel struct {
	seen      []follower // what earlier moments had
	followers []follower
	trimmed   int
	back      int
}

// check compares the newest moment with the followers' state, and earlier moments with
// the states they had then.
func (w *momentsModel) check(m *storeModel) {
	s, err := m.db.View(configMaps)
	m.must(err)
	at, newest, err := s.Moment("")
	if errors.Is(err, ErrNotWhole) {
		return
	}
	m.must(err)
	if newest != at.Version || at.Version != s.LastStoreSyncResourceVersion() {
		m.fail("the newest moment is %+v at %s", at, newest)
	}
	now, err := contentAt(s, at, "", 1+m.rnd.IntN(4))
	m.must(err)
	for key, text := range now {
		obj, _, err := s.GetAt(key)
		m.must(err)
		if obj == nil || modelText(obj.(*corev1.ConfigMap)) != text {
			m.fail("%s is %v, not %s", key, obj, text)
		}
	}
	equal := func(what string, at Moment, got, want map[string]string) {
		m.t.Helper()
		if !maps.Equal(got, want) {
			m.fail("%s: at %+v %v, not %v", what, at, got, want)
		}
	}
	kept := w.seen[:0]
	for _, was := range w.seen {
		switch got, err := contentAt(s, was.at, "ns/", 1+m.rnd.IntN(4)); {
		case errors.Is(err, ErrTrimmed):
			w.trimmed++
			continue
		case err != nil:
			m.fail("at %+v: %v", was.at, err)
		default:
			w.back++
			equal("what was then", was.at, got, was.content)
			kept = append(kept, was)
		}
		// A client goes on from the version of that moment.
		again, _, err := s.MomentFrom(was.at.Version)
		if errors.Is(err, ErrTrimmed) {
			continue
		}
		m.must(err)
		f := follower{again, maps.Clone(was.content)}
		m.must(f.catchUp(s))
		equal(fmt.Sprintf("from version %s", was.at.Version), f.at, f.content, now)
	}
	w.seen = kept
	for i := range w.followers {
		f := &w.followers[i]
		if m.rnd.IntN(3) > 0 {
			continue // it does not read
		}
		switch err := f.catchUp(s); {
		case errors.Is(err, ErrTrimmed):
			*f = follower{at, maps.Clone(now)}
		case err != nil:
			m.fail("follower: %v", err)
		}
		if f.at != at {
			m.fail("a follower is at %+v, not %+v", f.at, at)
		}
		equal("follower", f.at, f.content, now)
	}
	for len(w.followers) < 3 {
		w.followers = append(w.followers, follower{at, maps.Clone(now)})
	}
	if !slices.ContainsFunc(w.seen, func(f follower) bool { return f.at == at }) {
		w.seen = append(w.seen, follower{at, now})
		w.seen = w.seen[max(0, len(w.seen)-8):]
	}
}

// TestMoments: a list from a moment has the objects of that time, and each version leads
// to the moment of its state, until the journal is trimmed.
func TestMoments(t *testing.T) {
	for name, o := range map[string]Options{"plain": {}, "sealed": {Keyset: sealtest.Keyset()},
		"packed": {Compression: CompressionZstd}} {
		t.Run(name, func(t *testing.T) {
			o.JournalBytes = 1 << 20
			db := openTest(t, testPath(t), o)
			s, p := claimTest(t, db, Claim{}), &testProducer{}
			s.Feed.Attach(p)
			if _, _, err := s.Moment(""); !errors.Is(err, ErrNotWhole) {
				t.Fatalf("before the first list: %v", err)
			}
			relist(t, s, "10", RelistOptions{},
				[]runtime.Object{configMap("a", "x", 3, nil), configMap("b", "x", 5, nil)}, 10)
			expect := func(version, want string) {
				t.Helper()
				at, _, err := s.Moment(version)
				if err != nil {
					t.Fatalf("%s: %v", version, err)
				}
				content, err := contentAt(s.Store, at, "", 2)
				if got := strings.Join(slices.Sorted(maps.Keys(content)), " "); err != nil || got != want {
					t.Fatalf("at %s: %q, want %q, %v", version, got, want, err)
				}
			}
			event(t, s, p, cache.Added, configMap("a", "y", 12, nil), nil)
			event(t, s, p, cache.Deleted, configMap("a", "x", 15, nil), nil)
			event(t, s, p, cache.Added, configMap("c", "z", 17, nil), nil)
			for version, want := range map[string]string{"10": "a/x b/x", "11": "a/x b/x", "12": "a/x a/y b/x",
				"14": "a/x a/y b/x", "15": "a/y b/x", "17": "a/y b/x c/z", "99": "a/y b/x c/z", "": "a/y b/x c/z"} {
				expect(version, want)
			}
			for _, version := range []string{"9", "1", "0", "word"} {
				if _, _, err := s.Moment(version); !errors.Is(err, ErrTrimmed) {
					t.Errorf("%s: %v", version, err)
				}
			}
			// A list brings changes in the order of keys, and deletes without a version.
			relist(t, s, "30", RelistOptions{},
				[]runtime.Object{configMap("a", "y", 29, nil), configMap("a", "z", 20, nil)}, 10)
			event(t, s, p, cache.Added, configMap("d", "z", 31, nil), nil)
			for version, want := range map[string]string{"15": "a/y b/x", "17": "a/y b/x c/z", "25": "a/y b/x c/z",
				"29": "a/y b/x c/z", "30": "a/y a/z", "31": "a/y a/z d/z"} {
				expect(version, want)
			}
			at, _, err := s.Moment("25")
			if err != nil {
				t.Fatal(err)
			}
			e, err := s.EntriesAfter(at)
			if err != nil || !e.Listed || len(e.Entries) != 4 || e.Next.Version != "30" {
				t.Fatalf("the list: %+v %v", e, err)
			}
			e, err = s.EntriesAfter(e.Next)
			if err != nil || e.Listed || len(e.Entries) != 1 || e.Entries[0].Version() != "31" {
				t.Fatalf("the event after it: %+v %v", e, err)
			}
			// A restored server gives versions another meaning.
			relist(t, s, "25", RelistOptions{NewTimeline: true}, []runtime.Object{configMap("a", "y", 20, nil)}, 10)
			if _, err := s.EntriesAfter(at); !errors.Is(err, ErrTrimmed) {
				t.Errorf("after the restore: %v", err)
			}
			if _, _, err := s.Moment("17"); !errors.Is(err, ErrTrimmed) {
				t.Errorf("a version from before the restore: %v", err)
			}
			expect("25", "a/y")
			for _, version := range []string{"26", "31"} { // the restored server has not reached them
				if _, _, err := s.MomentFrom(version); !errors.Is(err, ErrTrimmed) {
					t.Errorf("version %s from before the restore: %v", version, err)
				}
			}
			expect("32", "a/y")
			relist(t, s, "27", RelistOptions{},
				[]runtime.Object{configMap("a", "y", 20, nil), configMap("a", "z", 27, nil)}, 10)
			expect("26", "a/y")
			expect("27", "a/y a/z")
			if err := s.Upstream.Empty(); err != nil {
				t.Fatal(err)
			}
			relist(t, s, "8", RelistOptions{}, []runtime.Object{configMap("a", "y", 7, nil)}, 10)
			for _, version := range []string{"9", "31"} {
				if _, _, err := s.MomentFrom(version); !errors.Is(err, ErrTrimmed) {
					t.Errorf("version %s of another cluster: %v", version, err)
				}
			}
			expect("32", "a/y")
		})
	}
}

// TestMomentsTrimmed: a moment that the journal no longer has is an error, never a
// shorter list.
func TestMomentsTrimmed(t *testing.T) {
	db := openTest(t, testPath(t), Options{JournalBytes: 1})
	s, p := claimTest(t, db, Claim{}), &testProducer{}
	s.Feed.Attach(p)
	relist(t, s, "1", RelistOptions{}, []runtime.Object{configMap("a", "x", 1, nil)}, 10)
	first, _, err := s.Moment("")
	if err != nil {
		t.Fatal(err)
	}
	for rv := 2; rv < 40; rv++ {
		event(t, s, p, cache.Added, configMap("a", fmt.Sprint("y", rv), rv, nil), nil)
		s.Delivery.SetTold(s.State().Seq)
	}
	if _, err := contentAt(s.Store, first, "", 10); !errors.Is(err, ErrTrimmed) {
		t.Errorf("the first moment: %v", err)
	}
	if _, err := s.EntriesAfter(first); !errors.Is(err, ErrTrimmed) {
		t.Errorf("what followed it: %v", err)
	}
	if _, _, err := s.Moment("3"); !errors.Is(err, ErrTrimmed) {
		t.Errorf("an early version: %v", err)
	}
	if at, _, err := s.Moment("39"); err != nil || at.Version != "39" {
		t.Errorf("the newest version: %+v %v", at, err)
	}
}

// TestManyLists: meta keeps a bounded number of lists.
func TestManyLists(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	for rv := 1; rv <= 3*mostMarks; rv++ {
		relist(t, s, fmt.Sprint(10*rv), RelistOptions{},
			[]runtime.Object{configMap("a", fmt.Sprint("x", rv), 10*rv, nil)}, 10)
	}
	if n := len(s.metaNow().Marks); n != mostMarks {
		t.Errorf("%d marks", n)
	}
	if _, _, err := s.Moment("15"); !errors.Is(err, ErrTrimmed) {
		t.Errorf("an early version: %v", err)
	}
	for rv := 3*mostMarks - mostMarks + 1; rv <= 3*mostMarks; rv++ {
		at, _, err := s.Moment(fmt.Sprint(10*rv + 5))
		if err != nil {
			t.Fatal(rv, err)
		}
		content, err := contentAt(s.Store, at, "", 10)
		if want := fmt.Sprint("a/x", rv); err != nil || len(content) != 1 || content[want] == "" {
			t.Errorf("after list %d: %v %v", rv, content, err)
		}
	}
}

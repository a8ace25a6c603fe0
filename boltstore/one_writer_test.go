package boltstore

import (
	"errors"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/listing"
)

// TestOneWriter: while a queue feeds a source, each of the program's writes is refused, and
// changes nothing.
func TestOneWriter(t *testing.T) {
	f := newFedTest(t, Options{})
	f.list(5, at(5, "x"))
	before := f.s.State()
	for name, write := range map[string]func() error{
		"Add":         func() error { return f.s.Add(at(6, "y")) },
		"Update":      func() error { return f.s.Update(at(6, "y")) },
		"Delete":      func() error { return f.s.Delete(at(6, "y")) },
		"Replace":     func() error { return f.s.Replace(nil, "6") },
		"BookmarkErr": func() error { return f.s.Filled.BookmarkErr("6") },
		"Transaction": func() error {
			err := f.s.Transaction(cache.Transaction{Type: cache.TransactionTypeAdd, Object: at(6, "y")})
			return errors.Join(err.Errors...)
		},
	} {
		if err := write(); !errors.Is(err, ErrFed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if st := f.s.State(); f.read() != "5x" || st.ResourceVersion != before.ResourceVersion || st.Seq != before.Seq {
		t.Errorf("%s, %+v", f.read(), st)
	}
}

// TestWritesBeforeRun: what the program writes before its informer runs takes the resume
// point away, also for the next life. The list tells handlers how the server's objects
// differ: plain ones as of the journal, durable ones by their pending keys.
func TestWritesBeforeRun(t *testing.T) {
	for _, restart := range []bool{false, true} {
		f := newFedTest(t, Options{})
		f.list(5, at(5, "x"))
		h, _ := claimHandler(t, f.s, "h")
		r, _ := h.ResetOwed()
		h.Acknowledge("", r)
		f.s.Feed.Flush()
		again := func(attach bool) {
			t.Helper()
			f.must(h.Release())
			closeTest(t, f.db)
			f.db = openTest(t, f.path, f.o)
			f.s, f.p = claimTest(t, f.db, Claim{Indexers: indexers}), &testProducer{}
			f.s.Feed.ExpectProducer()
			h, _ = claimHandler(t, f.s, "h")
			if attach {
				f.s.Feed.Attach(f.p)
			}
		}
		again(false)
		f.from = f.s.State().Seq + 1
		f.must(f.s.Delete(at(5, "x")))
		f.must(f.s.Add(configMap("a", "mine", 99, nil)))
		if st := f.s.State(); st.ResourceVersion != "" || st.Synced {
			t.Fatalf("after the writes: %+v", st)
		}
		if restart {
			again(true)
		} else {
			f.s.Feed.Attach(f.p)
		}
		if p, err := f.s.Delivery.ServerPage(nil, 10); err != nil || p.Synced {
			t.Fatalf("handlers would be shown %+v, %v", p, err)
		}
		f.list(7, at(7, "y"))
		if got := f.told(); got != "Deleted ?5x, Added 7y" {
			t.Errorf("told %s", got)
		}
		p, ok, err := h.Read("a/o")
		if err != nil || !ok || len(p.Deleted) != 1 || p.Object.(*corev1.ConfigMap).ResourceVersion != "7" {
			t.Errorf("the durable handler is told %+v %t %v", p, ok, err)
		}
		if p, ok, err := h.Read("a/mine"); err != nil || !ok || len(p.Deleted) != 1 || p.Object != nil {
			t.Errorf("the durable handler is told of the program's object %+v %t %v", p, ok, err)
		}
		if st := f.s.State(); st.ResourceVersion != "7" || !st.Synced || f.read() != "7y" {
			t.Errorf("%+v, %s", st, f.read())
		}
		closeTest(t, f.db)
	}
}

// TestReplacedByNothingBeforeRun: a program that removes everything before its informer runs
// has taken the resume point away, too.
func TestReplacedByNothingBeforeRun(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{Indexers: indexers})
	relist(t, s, "5", RelistOptions{}, []runtime.Object{at(5, "x")}, 10)
	must(t, s.Replace(nil, "9"))
	if st := s.State(); st.ResourceVersion != "" || st.Synced || st.Objects != 0 {
		t.Errorf("%+v", st)
	}
}

// TestWritesWhileAttached: a queue that is attached while the program writes waits for the
// write that is being committed. It refuses the one behind it. So what the queue then reads of
// the source stays.
func TestWritesWhileAttached(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond})
	s := claimTest(t, db, Claim{Indexers: indexers})
	relist(t, s, "5", RelistOptions{}, []runtime.Object{at(5, "x")}, 10)
	began, goOn := make(chan struct{}), make(chan struct{})
	wait := sync.OnceFunc(func() { close(began); <-goOn })
	db.h.setHook(func(*bolt.Tx) error { wait(); return nil })
	first, second, attached := make(chan error, 1), make(chan error, 1), make(chan struct{})
	go func() { first <- s.Add(at(6, "y")) }()
	<-began
	go func() { second <- s.Add(at(7, "z")) }()
	eventually(t, "the second write waits", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.writer.queue) > 0
	})
	go func() { s.Feed.Attach(&testProducer{}); close(attached) }()
	if err := <-second; !errors.Is(err, ErrFed) {
		t.Error("the second write: ", err)
	}
	select {
	case <-attached:
		t.Error("attached while a write is committed")
	default:
	}
	close(goOn)
	must(t, <-first)
	<-attached
	if st := s.State(); st.ResourceVersion != "" || st.Synced {
		t.Errorf("after the write: %+v", st)
	}
}

// TestEmptyForgetsTheComparison: what was noted of one cluster's objects is not noted of the
// next one's.
func TestEmptyForgetsTheComparison(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{})
	relist(t, s, "5", RelistOptions{}, []runtime.Object{at(5, "x")}, 10)
	s.Upstream.NoteCompared()
	s.Upstream.NoteFacts(func(f *listing.Facts) { f.MetadataSize = 7 })
	must(t, s.Upstream.Empty())
	closeTest(t, db)
	s = claimTest(t, openTest(t, path, Options{}), Claim{})
	if st := s.State(); !st.Compared.IsZero() || !s.Filled.FilledByProgram() || s.Upstream.Facts().MetadataSize > 0 {
		t.Errorf("%+v", st)
	}
}

// TestWritesAlone: a program that fills a source states its resume point.
func TestWritesAlone(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{Indexers: indexers})
	must(t, s.Replace([]any{at(5, "x"), configMap("z", "other", 1, nil)}, "5"))
	must(t, s.Update(at(6, "y")))
	must(t, s.Delete(configMap("z", "other", 1, nil)))
	s.Bookmark("9")
	if st := s.State(); st.ResourceVersion != "9" || st.Objects != 1 || st.Synced || st.Seq != 0 {
		t.Fatalf("%+v", st)
	}
}

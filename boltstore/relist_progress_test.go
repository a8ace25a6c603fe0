package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/sealtest"
	"github.com/kubewake/kubewake/internal/versions"
)

// firstList is a first list that is read in several attempts.
type firstList struct {
	t     *testing.T
	pages [][]runtime.Object
	o     RelistOptions
	began time.Time
}

// to is the progress with n pages read.
func (l *firstList) to(n int) listing.Progress {
	p := listing.Progress{ResourceVersion: "100", Newest: fmt.Sprint(100 + n), PageSize: 7, Began: l.began}
	if n < len(l.pages) {
		p.Continue = fmt.Sprint("page ", n)
	}
	return p
}

// begin begins a relist and returns how many pages an earlier attempt has read.
func (l *firstList) begin(s *Claimed) (*Relist, int) {
	l.t.Helper()
	r, err := s.Upstream.BeginRelist(l.o)
	if err != nil {
		l.t.Fatal(err)
	}
	return r, l.place(r)
}

func (l *firstList) place(r *Relist) int {
	l.t.Helper()
	at, ok := r.TakenUp()
	if !ok {
		return 0
	}
	for n := range len(l.pages) {
		if p := l.to(n + 1); at.Continue == p.Continue {
			if versions.Newer(p.Newest, at.Newest) || at.ResourceVersion != "100" ||
				at.Began.Sub(l.began).Abs() > time.Second || at.PageSize != 7 {
				l.t.Fatalf("taken up at %+v, not %+v", at, p)
			}
			return n + 1
		}
	}
	l.t.Fatalf("taken up at %+v", at)
	return 0
}

// read reads the pages from the n-th up to the m-th.
func (l *firstList) read(r *Relist, n, m int) error {
	for i := n; i < m; i++ {
		if err := r.PageTo(l.pages[i], l.to(i+1)); err != nil {
			return err
		}
	}
	return nil
}

// attempt reads on up to the m-th page and aborts. If there are fewer pages, it reads
// all and commits.
func (l *firstList) attempt(s *Claimed, m int) (from int) {
	l.t.Helper()
	r, from := l.begin(s)
	err := l.read(r, from, min(m, len(l.pages)))
	if err == nil && m > len(l.pages) {
		_, err = r.Commit("100", l.began)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return from
}

// nothing fails the test if any part of an interrupted list can be seen.
func nothing(t *testing.T, s *Claimed) {
	t.Helper()
	st := s.State()
	p, err := s.Page(nil, 100)
	if st.Synced || st.Objects != 0 || st.Bytes != 0 || len(s.List()) != 0 || len(s.ListKeys()) != 0 || p.Synced ||
		len(p.Keys) != 0 || err != nil {
		t.Fatalf("an interrupted list is served: %+v %+v %v", st, p, err)
	}
	for name := range s.GetIndexers() {
		if v := s.ListIndexFuncValues(name); len(v) != 0 {
			t.Fatalf("index %s has %q", name, v)
		}
	}
	r, err := s.db.Check()
	if err != nil || !r.Sound() {
		t.Fatalf("%+v %v", r, err)
	}
}

func hasProgress(t *testing.T, s *Claimed) bool {
	t.Helper()
	found := false
	err := s.view(func(m *sourceMeta, _ sourceTx) error {
		found = m.Progress != nil && m.Contents == contentsPartial
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func listed(n int) server {
	srv := server{}
	for i := range n {
		srv.set(configMap(fmt.Sprint("ns", i%3), fmt.Sprintf("cm%03d", i), i+1,
			map[string]string{"words": fmt.Sprint("w", i%5, ",x"), "long": strings.Repeat("z", 40)}))
	}
	return srv
}

// wants compares everything with the server's state, indices too.
func wants(t *testing.T, what string, s *Claimed, srv server) {
	t.Helper()
	sameObjects(t, what, srv.anys(), s.List())
	model := cache.NewIndexer(cache.MetaNamespaceKeyFunc, s.GetIndexers())
	for _, o := range srv.anys() {
		_ = model.Add(o)
	}
	for name := range s.GetIndexers() {
		for _, v := range model.ListIndexFuncValues(name) {
			want, _ := model.IndexKeys(name, v)
			got, err := s.IndexKeys(name, v)
			if err != nil || !slices.Equal(sorted(got), sorted(want)) {
				t.Fatalf("%s: index %s of %q: %v, not %v, %v", what, name, v, got, want, err)
			}
		}
		if len(s.ListIndexFuncValues(name)) != len(model.ListIndexFuncValues(name)) ||
			!s.metaNow().Indices[name].Complete {
			t.Fatalf("%s: index %s: %v", what, name, s.metaNow().Indices[name])
		}
	}
	if st := s.State(); !st.Synced || st.Objects != uint64(len(srv)) || st.Seq != 0 {
		t.Fatalf("%s: %+v", what, st)
	}
	if r, err := s.db.Check(); err != nil || !r.Sound() {
		t.Fatalf("%s: %+v %v", what, r, err)
	}
}

// TestListTakenUp: a first list goes on where it was interrupted, in the same life or the
// next. No part of it is visible before it ends.
func TestListTakenUp(t *testing.T) {
	for name, o := range map[string]Options{
		"plain": {}, "small commits": {maxCommitBytes: 1500}, "encrypted": {Keyset: sealtest.Keyset()},
		"packed": {Compression: CompressionZstd},
	} {
		for _, life := range []string{"same", "claim", "process"} {
			t.Run(name+"/"+life, func(t *testing.T) {
				path := testPath(t)
				db := openTest(t, path, o)
				s := claimTest(t, db, Claim{Indexers: indexers})
				srv := listed(260)
				l := newFirstList(t, srv.list(), 60)
				for m := range len(l.pages) + 2 {
					// Commit writes the last page
					if from := l.attempt(s, m); from != min(max(m-1, 0), len(l.pages)-1) {
						t.Fatalf("attempt %d began at page %d", m, from)
					}
					switch {
					case m > len(l.pages):
						wants(t, "at the end", s, srv)
					default:
						nothing(t, s)
					}
					switch life {
					case "claim":
						s.Release()
						s = claimTest(t, db, Claim{Indexers: indexers})
					case "process":
						closeTest(t, db)
						db = openTest(t, path, o)
						s = claimTest(t, db, Claim{Indexers: indexers})
					}
				}
				wants(t, "afterwards", s, srv)
				if st := s.State(); st.ResourceVersion != "100" || !st.Confirmed.Equal(l.began) {
					t.Errorf("%+v", st)
				}
				if s.metaNow().Progress != nil {
					t.Error("the progress is still there")
				}
			})
		}
	}
}

// TestTakenUpCutAtEachCommit makes the k-th transaction of a list, and of the attempt
// that continues it, the last one of the process.
func TestTakenUpCutAtEachCommit(t *testing.T) {
	for k := 1; ; k++ {
		path := testPath(t)
		srv := listed(24)
		l := newFirstList(t, srv.list(), 5)
		read := 0
		for n, ended := 0, false; !ended; n++ {
			db := openTest(t, path, Options{maxCommitBytes: 4000})
			s := claimTest(t, db, Claim{Indexers: indexers})
			if read > 0 && !hasProgress(t, s) {
				t.Fatalf("cut after %d, life %d: nothing is left of %d pages", k, n, read)
			}
			nothing(t, s)
			ended = cutAfter(db, k, func() error {
				r, err := s.Upstream.BeginRelist(l.o)
				if err != nil {
					return err
				}
				from := l.place(r)
				if from != min(read, len(l.pages)-1) { // Commit writes the last page
					t.Fatalf("cut after %d, life %d: began at page %d, %d were read", k, n, from, read)
				}
				read = from
				for ; read < len(l.pages); read++ {
					if err := l.read(r, read, read+1); err != nil {
						return err
					}
				}
				_, err = r.Commit("100", l.began)
				return err
			})
			if n > 30 {
				if k > 3 {
					t.Fatalf("cut after %d: no end", k)
				}
				break // a page takes more transactions than that
			}
			if ended {
				db = openTest(t, path, Options{})
				wants(t, fmt.Sprint("cut after ", k), claimTest(t, db, Claim{Indexers: indexers}), srv)
				closeTest(t, db)
				if n == 0 {
					t.Logf("%d transactions", k-1)
					return
				}
			}
		}
	}
}

// TestTakenUpUnderOtherIndices: pages of different lives are in the indices of the last
// one, whatever indices the earlier lives had.
func TestTakenUpUnderOtherIndices(t *testing.T) {
	upper := func(o any) ([]string, error) {
		return []string{strings.ToUpper(o.(*corev1.ConfigMap).Data["words"])}, nil
	}
	claims := []Claim{
		{Indexers: indexers},
		{Indexers: cache.Indexers{"words": upper, cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
			IndexVersions: map[string]string{"words": "2"}},
		{Indexers: cache.Indexers{"words": indexers["words"], "new": upper}},
		{Indexers: cache.Indexers{}},
	}
	for a, first := range claims {
		for b, second := range claims {
			for c, third := range claims[1:3] {
				path := testPath(t)
				srv := listed(40)
				l := newFirstList(t, srv.list(), 10)
				for n, cl := range []Claim{first, second, third} {
					db := openTest(t, path, Options{})
					s := claimTest(t, db, cl)
					if n < 2 {
						l.attempt(s, n+1)
					} else {
						if from := l.attempt(s, 5); from != 2 {
							t.Fatalf("taken up at %d", from)
						}
						wants(t, fmt.Sprint(a, b, c), s, srv)
					}
					closeTest(t, db)
				}
				db := openTest(t, path, Options{})
				wants(t, fmt.Sprint(a, b, c, " reclaimed"), claimTest(t, db, claims[0]), srv)
				closeTest(t, db)
			}
		}
	}
}

// TestUnstoredIsRemembered: an object that could not be stored in an earlier
// life is reported again, since it is missing.
func TestUnstoredIsRemembered(t *testing.T) {
	path := testPath(t)
	srv := listed(30)
	l := newFirstList(t, srv.list(), 10)
	var told []string
	l.o.OnError = func(obj runtime.Object, err error) { told = append(told, fmt.Sprint(obj == nil, " ", err)) }
	l.o.Transform = func(o runtime.Object) (runtime.Object, error) {
		if o.(*corev1.ConfigMap).Name == "cm003" {
			return nil, errors.New("it is odd")
		}
		return o, nil
	}
	for m := range 5 {
		told = nil
		db := openTest(t, path, Options{})
		s := claimTest(t, db, Claim{})
		l.attempt(s, m)
		if want := m > 0; (len(told) == 1) != want || want && !strings.HasSuffix(told[0], "it is odd") {
			t.Errorf("attempt %d told %q", m, told)
		}
		closeTest(t, db)
	}
}

// TestReleasedRelistWritesNothing: a relist whose store was released does not touch what
// another claim may continue.
func TestReleasedRelistWritesNothing(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{Indexers: indexers})
	srv := listed(150)
	l := newFirstList(t, srv.list(), 60)
	l.attempt(s, 1)
	old, from := l.begin(s)
	s.Release()
	s = claimTest(t, db, Claim{Indexers: indexers})
	r, _ := l.begin(s)
	if err := l.read(old, from, from+1); !errors.Is(err, ErrClosed) {
		t.Errorf("a page: %v", err)
	}
	if _, err := old.Commit("7", time.Now()); !errors.Is(err, ErrClosed) {
		t.Errorf("a commit: %v", err)
	}
	if err := l.read(r, from, len(l.pages)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit("100", l.began); err != nil {
		t.Fatal(err)
	}
	wants(t, "of the second claim", s, srv)
}

// TestPartIsNotReadable: no value of an interrupted list, nor its progress, can be read in an
// encrypted file.
func TestPartIsNotReadable(t *testing.T) {
	for _, ks := range []*seal.Keyset{nil, sealtest.Keyset()} {
		path := testPath(t)
		db := openTest(t, path, Options{Keyset: ks, decrypt: ks == nil})
		s := claimTest(t, db, Claim{Indexers: indexers})
		newFirstList(t, listed(30).list(), 10).attempt(s, 2)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{"uid-cm003", "page 2"} {
			if found := bytes.Contains(b, []byte(what)); found != (ks == nil) {
				t.Errorf("encrypted %v: %q was found: %v", ks != nil, what, found)
			}
		}
	}
}

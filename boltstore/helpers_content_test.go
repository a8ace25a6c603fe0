package boltstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/podgen"
)

// event commits an event, or the note of an object that cannot be stored.
func event(t *testing.T, s *Claimed, p *testProducer, typ cache.DeltaType, obj any, why error) {
	t.Helper()
	c, err := s.Feed.Prepare(typ, obj)
	if why != nil {
		c, err = s.Feed.Unstored(obj, why), nil
	}
	if err != nil {
		t.Fatal(err)
	}
	p.put(&Batch{Changes: []*Change{c}, ResourceVersion: c.rv})
	s.wake(true)
	p.wait(t)
}

func expectNoted(t *testing.T, what string, s *Claimed, want ...string) {
	t.Helper()
	var unstored []string
	failures := 0
	for _, w := range want {
		if strings.Contains(w, " at ") {
			unstored = append(unstored, w)
		} else {
			failures++
		}
	}
	if got := notedOf(t, s.Store); !slices.Equal(got, unstored) {
		t.Fatalf("%s: noted %q, want %q", what, got, unstored)
	}
	indexAgain(t, s)
	if n := s.State().Unindexed; n != uint64(failures) {
		t.Fatalf("%s: %d values are missing, want %d: %q", what, n, failures, want)
	}
}

// indexAgain calls the index functions again that have failed, as is done in time.
func indexAgain(t *testing.T, s *Claimed) {
	t.Helper()
	must(t, s.builder.now(s.indices.set().fns))
}

// failing is an index whose function fails on some objects.
func failing(names *[]string) Claim {
	return Claim{
		Indexers: cache.Indexers{"words": indexers["words"], "odd": func(o any) ([]string, error) {
			if slices.Contains(*names, o.(*corev1.ConfigMap).Name) {
				return nil, errRefused
			}
			return []string{"v" + o.(*corev1.ConfigMap).ResourceVersion}, nil
		}},
		IndexVersions: map[string]string{"words": "1", "odd": "1"},
	}
}

// refusing is a transform that refuses objects of these names.
func refusing(names ...string) func(runtime.Object) (runtime.Object, error) {
	return func(obj runtime.Object) (runtime.Object, error) {
		if slices.Contains(names, obj.(*corev1.ConfigMap).Name) {
			return nil, errRefused
		}
		return obj, nil
	}
}

// relistSome relists; some objects cannot be stored.
func relistSome(t *testing.T, s *Claimed, rv string, o RelistOptions, objs []runtime.Object) []*Entry {
	t.Helper()
	o.OnError = func(_ runtime.Object, err error) {
		if !errors.Is(err, errRefused) {
			t.Error(err)
		}
	}
	r, err := s.Upstream.BeginRelist(o)
	if err != nil {
		t.Fatal(err)
	}
	for page := range slices.Chunk(objs, 3) {
		if err := r.Page(page); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := r.Commit(rv, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// at is the object o at a version, with some content.
func at(rv int, content string) *corev1.ConfigMap {
	return configMap("a", "o", rv, map[string]string{"words": content, "long": strings.Repeat(content, 30)})
}

// packedBy counts the records by their packing.
func packedBy(t testing.TB, s *Claimed) map[uint32]int {
	t.Helper()
	by := map[uint32]int{}
	for from, more := []byte(nil), true; more; more = from != nil {
		raws, next, err := s.builder.rawPage(from, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		for _, rw := range raws {
			_, r, err := s.coder.owner.ParseRecord(rw.Key, rw.Stored)
			if err != nil {
				t.Fatal(err)
			}
			by[r.Packed]++
		}
		from = next
	}
	return by
}

func podClaim() Claim {
	return Claim{Source: pods, Example: &corev1.Pod{},
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}}
}

// serves compares what the store serves with objs, by each way of reading.
func serves(t testing.TB, s *Claimed, objs []runtime.Object) {
	t.Helper()
	var want []any
	for _, o := range objs {
		want = append(want, o)
		got, ok, err := s.Get(o)
		if err != nil || !ok {
			t.Fatalf("get: %v", err)
		}
		sameObjects(t.(*testing.T), "get", []any{got}, []any{o})
	}
	got, err := s.ListErr()
	if err != nil {
		t.Fatal(err)
	}
	sameObjects(t.(*testing.T), "list", got, want)
}

// somePods returns pods from on.
func somePods(from, n int) (objs []runtime.Object) {
	g := podgen.New(1)
	for i := from; i < from+n; i++ {
		p := g.Pod(i)
		p.ResourceVersion = fmt.Sprint(i + 1)
		objs = append(objs, p)
	}
	return objs
}

func newFirstList(t *testing.T, objs []runtime.Object, pageSize int) *firstList {
	return &firstList{t: t, pages: slices.Collect(slices.Chunk(objs, pageSize)), began: time.Unix(1000, 5),
		o: RelistOptions{TakeUp: true, ClusterUID: "c1", Server: "s1", OnError: func(_ runtime.Object, err error) {
			t.Error(err)
		}}}
}

// journalFrom reads all entries from seq on, out of the file.
func journalFrom(t *testing.T, s *Claimed, seq uint64) (all []*Entry) {
	t.Helper()
	for {
		entries, err := s.Feed.ReadJournal(seq)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			return all
		}
		all = append(all, entries...)
		seq = entries[len(entries)-1].Seq + 1
	}
}

func relist(t testing.TB, s *Claimed, rv string, o RelistOptions, objs []runtime.Object, pageSize int) (
	[]*Entry, *Relist,
) {
	t.Helper()
	o.OnError = func(obj runtime.Object, err error) { t.Errorf("not stored: %v", err) }
	r, err := s.Upstream.BeginRelist(o)
	if err != nil {
		t.Fatal(err)
	}
	for page := range slices.Chunk(objs, pageSize) {
		if err := r.Page(page); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := r.Commit(rv, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return entries, r
}

// relistAgain lists until a list is committed, as a reflector does: a list that meets damage
// begins again. It returns how many lists there were, three at most.
func relistAgain(t testing.TB, s *Claimed, rv string, objs []runtime.Object) (lists int) {
	t.Helper()
	for {
		lists++
		r, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
		if err == nil {
			err = r.Page(objs)
		}
		if err == nil {
			_, err = r.Commit(rv, time.Now())
		}
		if r != nil {
		}
		switch {
		case err == nil:
			return lists
		case lists == 3 || !errors.Is(err, ErrAbandoned) && !errors.Is(err, ErrDamaged):
			t.Fatal(err)
		}
	}
}

func configMap(ns, name string, rv int, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name),
			ResourceVersion: fmt.Sprint(rv)},
		Data: data,
	}
}

func sameObjects(t *testing.T, what string, a, b []any) {
	t.Helper()
	byKey := func(x, y any) int {
		kx, _ := cache.MetaNamespaceKeyFunc(x)
		ky, _ := cache.MetaNamespaceKeyFunc(y)
		return strings.Compare(kx, ky)
	}
	slices.SortFunc(a, byKey)
	slices.SortFunc(b, byKey)
	if len(a) != len(b) {
		t.Fatalf("%s: client-go has %d objects, ours %d", what, len(a), len(b))
	}
	for i := range a {
		if !apiequality.Semantic.DeepEqual(a[i], b[i]) {
			t.Fatalf("%s: client-go has\n%.300q\nours\n%.300q", what, fmt.Sprint(a[i]), fmt.Sprint(b[i]))
		}
	}
}

// fill stores n objects of about a KiB and deletes all but every keep-th.
func fill(t testing.TB, s *Claimed, n, keep int) {
	t.Helper()
	var put, del []cache.Transaction
	for i := range n {
		o := configMap("ns", fmt.Sprintf("cm%05d", i), i+1,
			map[string]string{"words": fmt.Sprint(i), "k": strings.Repeat(fmt.Sprintf("%x ", i*7919), 200)})
		put = append(put, cache.Transaction{Object: o, Type: cache.TransactionTypeAdd})
		if i%keep != 0 {
			del = append(del, cache.Transaction{Object: o, Type: cache.TransactionTypeDelete})
		}
	}
	for _, txns := range [][]cache.Transaction{put, del} {
		if err := s.Transaction(txns...); err != nil {
			t.Fatal(err)
		}
	}
}

// fillSmall makes a file with objects, a journal, a durable handler and notes.
func fillSmall(t *testing.T, path string, o Options) {
	t.Helper()
	o.Window = time.Nanosecond
	db, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	s := claimTest(t, db, Claim{Indexers: indexers})
	fill(t, s, 60, 3)
	p := &testProducer{}
	s.Feed.Attach(p)
	claimHandler(t, s, "handler")
	for i := range 3 {
		p.add(t, s, configMap("ns", "late", 5000+i, map[string]string{"words": "w"}))
		p.wait(t)
	}
	event(t, s, p, "Updated", configMap("ns", "cm00003", 5003, nil), errRefused)
	s.Release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// wasteful makes a closed file with few objects in many pages, two sources, a
// journal and a source that was set aside.
func wasteful(t *testing.T, path string) {
	t.Helper()
	db := openTest(t, path, Options{Compression: CompressionNone})
	s := claimTest(t, db, Claim{Indexers: indexers})
	fill(t, s, 1000, 10)
	p := &testProducer{}
	s.Feed.Attach(p)
	p.add(t, s, configMap("ns", "late", 5000, nil))
	p.wait(t)
	other := claimTest(t, db, Claim{Source: Source{Version: "v1", Resource: "configmaps", Namespace: "x",
		Form: FormTyped}})
	if err := other.Add(configMap("x", "one", 1, nil)); err != nil {
		t.Fatal(err)
	}
	if err := other.Upstream.Empty(); err != nil {
		t.Fatal(err)
	}
	closeTest(t, db)
}

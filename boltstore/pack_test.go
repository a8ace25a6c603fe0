package boltstore

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/pack"
	"github.com/kubewake/kubewake/index"
)

var pods = Source{Version: "v1", Resource: "pods", Form: FormTyped}

// retrain trains another dictionary from the objects in the file.
func retrain(t testing.TB, s *Claimed) {
	t.Helper()
	before := s.packs.Current().Version
	s.packs.Hurry(true)
	s.packing().trainStored()
	if now := s.packs.Current().Version; now <= before {
		t.Fatalf("no dictionary after %d", before)
	}
}

// TestPackedFirstList: the first list trains a dictionary and is packed with it as a
// whole. The file is far smaller, and has the same content after a restart, even for a
// program without packing.
func TestPackedFirstList(t *testing.T) {
	path := testPath(t)
	objs := somePods(0, 300)
	db := openTest(t, path, Options{Compression: CompressionZstd})
	s := claimTest(t, db, podClaim())
	relist(t, s, "300", RelistOptions{}, objs, 100)
	if by := packedBy(t, s); by[format.PackedByDict] != 300 {
		t.Fatalf("packed by %v", by)
	}
	plain := openTest(t, testPath(t), Options{Compression: CompressionNone})
	p := claimTest(t, plain, podClaim())
	relist(t, p, "300", RelistOptions{}, objs, 100)
	if by := packedBy(t, p); by[format.NotPacked] != 300 || dictVersions(t, p) != nil {
		t.Fatalf("not to be packed, and %v", by)
	}
	if a, b := s.State().Bytes, p.State().Bytes; a*3 > b {
		t.Fatalf("%d bytes packed, %d not", a, b)
	}
	serves(t, s, objs)
	closeTest(t, db)
	db = openTest(t, path, Options{Compression: CompressionNone})
	s = claimTest(t, db, podClaim())
	serves(t, s, objs)
	v, err := db.View(pods)
	if err != nil {
		t.Fatal(err)
	}
	serves(t, &Claimed{v}, objs)
	changed := objs[0].DeepCopyObject().(*corev1.Pod)
	changed.Spec.NodeName = "another"
	if err := s.Add(changed); err != nil {
		t.Fatal(err)
	}
	if by := packedBy(t, s); by[format.NotPacked] != 1 || by[format.PackedByDict] != 299 {
		t.Fatalf("after a change: %v", by)
	}
}

// TestRecordsOfAllDictionaries: records of every age can be read, even in the journal.
func TestRecordsOfAllDictionaries(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{Compression: CompressionZstd})
	s := claimTest(t, db, podClaim())
	p := &testProducer{}
	s.Attach(p)
	objs := somePods(0, 200)
	put := func(objs []runtime.Object) {
		t.Helper()
		b := &Batch{}
		for _, o := range objs {
			c, err := s.Prepare(cache.Added, o)
			if err != nil {
				t.Fatal(err)
			}
			b.Changes = append(b.Changes, c)
		}
		p.put(b)
		s.wake(false)
		p.wait(t)
	}
	put(objs[:60])
	for i := range 3 {
		retrain(t, s)
		put(objs[60+40*i : 100+40*i])
	}
	if by := packedBy(t, s); by[format.PackedPlain] != 60 || by[2] != 40 || by[3] != 40 || by[4] != 40 {
		t.Fatalf("packed by %v", by)
	}
	late, err := db.View(pods) // of the same process
	if err != nil {
		t.Fatal(err)
	}
	retrain(t, s)
	// Every object changes: the journal has the old ones.
	var changed []runtime.Object
	for i, o := range objs[:180] {
		o := o.(*corev1.Pod).DeepCopy()
		o.ResourceVersion = fmt.Sprint(1000 + i)
		o.Status.Message = fmt.Sprint("changed ", i)
		changed = append(changed, o)
	}
	put(changed)
	if by := packedBy(t, s); by[5] != 180 {
		t.Fatalf("packed by %v", by)
	}
	for round := range 2 {
		serves(t, s, changed)
		var next, prev []any
		for _, e := range journalFrom(t, s, 1) {
			o, err := e.Object()
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == cache.Updated {
				b, err := e.Previous()
				if err != nil {
					t.Fatal(err)
				}
				next, prev = append(next, o), append(prev, b)
			}
		}
		sameObjects(t, "journal", next, asAny(changed))
		sameObjects(t, "journal's previous", prev, asAny(objs[:180]))
		if round == 0 {
			serves(t, &Claimed{late}, changed)
			closeTest(t, db)
			db = openTest(t, path, Options{Compression: CompressionZstd})
			s = claimTest(t, db, podClaim())
		}
	}
}

func asAny(objs []runtime.Object) (out []any) {
	for _, o := range objs {
		out = append(out, o)
	}
	return out
}

// TestUnusedDictionariesGo once no record and no journal entry needs them.
func TestUnusedDictionariesGo(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1_000_000, 0))
	path := testPath(t)
	o := Options{Compression: CompressionZstd, Clock: clk, JournalAge: time.Minute, Window: time.Nanosecond, FlushInterval: 1000 * time.Hour}
	db := openTest(t, path, o)
	s := claimTest(t, db, podClaim())
	objs := somePods(0, 100)
	relist(t, s, "100", RelistOptions{}, objs, 100)
	reopen := func(want ...uint32) {
		t.Helper()
		closeTest(t, db)
		db = openTest(t, path, o)
		s = claimTest(t, db, podClaim())
		if got := dictVersions(t, s); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("dictionaries %v, not %v", got, want)
		}
	}
	reopen(2)
	retrain(t, s)
	reopen(2, 3) // records use 2
	p := &testProducer{}
	s.Attach(p)
	b := &Batch{}
	for _, obj := range objs {
		obj.(*corev1.Pod).ResourceVersion += "0"
		c, err := s.Prepare(cache.Updated, obj)
		if err != nil {
			t.Fatal(err)
		}
		b.Changes = append(b.Changes, c)
	}
	p.put(b)
	s.wake(false)
	p.wait(t)
	s.SetTold(s.State().Seq)
	reopen(2, 3) // the journal does
	reopen(2, 3)
	for _, e := range journalFrom(t, s, 1) {
		if _, err := e.Previous(); err != nil {
			t.Fatal(err)
		}
	}
	clk.Step(time.Hour)
	p = &testProducer{}
	s.Attach(p)
	c, err := s.Prepare(cache.Deleted, objs[0])
	if err != nil {
		t.Fatal(err)
	}
	p.put(&Batch{Changes: []*Change{c}})
	s.wake(false)
	p.wait(t)
	reopen(3)
	serves(t, s, objs[1:])
}

// TestRelistComparesContent: after a restore of the server, content is compared,
// however it is packed.
func TestRelistComparesContent(t *testing.T) {
	db := openTest(t, testPath(t), Options{Compression: CompressionZstd})
	s := claimTest(t, db, podClaim())
	objs := somePods(0, 120)
	relist(t, s, "100", RelistOptions{}, objs, 50)
	retrain(t, s)
	objs[7] = objs[7].(*corev1.Pod).DeepCopy()
	objs[7].(*corev1.Pod).Status.Message = "other content, same version"
	entries, r := relist(t, s, "90", RelistOptions{NewTimeline: true}, objs, 50)
	if len(entries) != 1 || r.Changed != 1 {
		t.Fatalf("%d entries, %d changed", len(entries), r.Changed)
	}
	if by := packedBy(t, s); by[2] != 119 || by[3] != 1 {
		t.Fatalf("packed by %v", by)
	}
	serves(t, s, objs)
}

// TestTrainsByItself: a source that fills by events gets a dictionary, and another one
// once its objects have changed, at least an hour later.
func TestTrainsByItself(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1_000_000, 0))
	db := openTest(t, testPath(t), Options{Compression: CompressionZstd, Clock: clk, Window: time.Nanosecond})
	s := claimTest(t, db, Claim{Source: configMaps, Example: &corev1.ConfigMap{}})
	text := func(kind string, i int) map[string]string {
		var common strings.Builder // to all of a kind, and nothing that repeats in it
		for n := range 12 {
			fmt.Fprintf(&common, "%x", sha256.Sum256(fmt.Append(nil, kind, n)))
		}
		return map[string]string{kind: fmt.Sprint(common.String(), i)}
	}
	fill := func(kind string, n int) {
		t.Helper()
		var txns []cache.Transaction
		for i := range n {
			txns = append(txns, cache.Transaction{Object: configMap("ns", fmt.Sprint(i), i+1, text(kind, i)), Type: cache.TransactionTypeUpdate})
		}
		if err := s.Transaction(txns...); err != nil {
			t.Fatal(err)
		}
	}
	tick := func(d time.Duration, want int) {
		t.Helper()
		clk.Step(d)
		fill("settings", 1)
		kept(t, db)
		if got := len(dictVersions(t, s)); got != want {
			t.Fatalf("%d dictionaries, not %d", got, want)
		}
	}
	fill("settings", pack.MinObjects-1)
	tick(keeperEvery, 0)
	fill("settings", 200)
	tick(keeperEvery, 1)
	fill("settings", 200)
	tick(2*pack.Interval, 1)
	for range 8 {
		fill("quite-another-thing", 200)
	}
	tick(keeperEvery, 2)
	fill("quite-another-thing", 200)
	if by := packedBy(t, s); by[3] != 200 {
		t.Fatalf("packed by %v", by)
	}
	for range 8 {
		fill("a-third-kind", 200)
	}
	tick(keeperEvery, 2) // an hour has not passed
}

// TestPackConcurrently packs and unpacks with one dictionary in many goroutines while
// another one is trained.
func TestPackConcurrently(t *testing.T) {
	db := openTest(t, testPath(t), Options{Compression: CompressionZstd, Window: time.Millisecond, Durability: DurabilityProcess})
	s := claimTest(t, db, podClaim())
	objs := somePods(0, 100)
	relist(t, s, "100", RelistOptions{}, objs, 100)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 60 {
				if w%2 == 0 {
					if got, err := s.ListErr(); err != nil || len(got) != 100 {
						t.Errorf("%d objects, %v", len(got), err)
					}
				} else if err := s.Add(objs[(w*50+i)%100]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	retrain(t, s)
	retrain(t, s)
	wg.Wait()
	serves(t, s, objs)
}

// TestHotBudgetCountsPlain: the cache counts objects by their unpacked size, however
// small they are in the file.
func TestHotBudgetCountsPlain(t *testing.T) {
	db := openTest(t, testPath(t), Options{Compression: CompressionZstd, hotBytes: 200_000, ObjectMemory: -1})
	s := claimTest(t, db, podClaim())
	objs := somePods(0, 100)
	relist(t, s, "100", RelistOptions{}, objs, 100)
	for _, o := range objs {
		if _, _, err := s.Get(o); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.hot.lru.Len(); n > 11 || n < 4 {
		t.Fatalf("%d pods of 5 KB are hot in 200 KB", n)
	}
}

func FuzzPacked(f *testing.F) {
	var samples [][]byte
	for _, o := range somePods(0, 60) {
		b, err := o.(*corev1.Pod).Marshal()
		if err != nil {
			f.Fatal(err)
		}
		samples = append(samples, b)
	}
	p, err := pack.Train(2, samples)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p.Pack(samples[0]), len(samples[0]))
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		if size < 0 || size > 1<<20 {
			return
		}
		if got, err := p.Unpack(b, size, nil); err == nil && len(got) != size {
			t.Fatalf("%d bytes, not %d", len(got), size)
		}
		r := &format.Record{Packed: 2, Size: size, Payload: b, UID: "u", ResourceVersion: "1"}
		raw, err := r.Encode(1, "a/b")
		if err != nil {
			t.Fatal(err)
		}
		if _, again, err := format.Owner(1).ParseRecord(index.AppendKey(nil, "a/b"), raw); err != nil || again.Size != size || again.Packed != 2 || !bytes.Equal(again.Payload, b) {
			t.Fatalf("%+v %v", again, err)
		}
	})
}

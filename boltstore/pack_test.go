package boltstore

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/pack"
	"github.com/kubewake/kubewake/index"
)

var pods = Source{Version: "v1", Resource: "pods", Form: FormTyped}

// TestPackedFirstList: the first list is packed. The file is far smaller, and has the same
// content after a restart, even for a program without packing.
func TestPackedFirstList(t *testing.T) {
	path := testPath(t)
	objs := somePods(0, 300)
	db := openTest(t, path, Options{Compression: CompressionZstd})
	s := claimTest(t, db, podClaim())
	relist(t, s, "300", RelistOptions{}, objs, 100)
	if by := packedBy(t, s); by[format.Dictionary] != 300 {
		t.Fatalf("packed by %v", by)
	}
	plain := openTest(t, testPath(t), Options{Compression: CompressionNone})
	p := claimTest(t, plain, podClaim())
	relist(t, p, "300", RelistOptions{}, objs, 100)
	if by := packedBy(t, p); by[format.NotPacked] != 300 {
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
	serves(t, newClaimed(v), objs)
	changed := objs[0].DeepCopyObject().(*corev1.Pod)
	changed.Spec.NodeName = "another"
	if err := s.Add(changed); err != nil {
		t.Fatal(err)
	}
	if by := packedBy(t, s); by[format.NotPacked] != 1 || by[format.Dictionary] != 299 {
		t.Fatalf("after a change: %v", by)
	}
}

// TestPackedOrNot: records of both forms can be read, even in the journal.
func TestPackedOrNot(t *testing.T) {
	path := testPath(t)
	objs := somePods(0, 100)
	var db *DB
	var s *Claimed
	open := func(c Compression) {
		t.Helper()
		if db != nil {
			closeTest(t, db)
		}
		db = openTest(t, path, Options{Compression: c})
		s = claimTest(t, db, podClaim())
	}
	put := func(objs []runtime.Object) {
		t.Helper()
		p := &testProducer{}
		s.Feed.Attach(p)
		b := &Batch{}
		for _, o := range objs {
			c, err := s.Feed.Prepare(cache.Added, o)
			must(t, err)
			b.Changes = append(b.Changes, c)
		}
		p.put(b)
		s.wake(false)
		p.wait(t)
	}
	open(CompressionNone)
	put(objs[:60])
	open(CompressionZstd)
	put(objs[60:])
	if by := packedBy(t, s); by[format.NotPacked] != 60 || by[format.Dictionary] != 40 {
		t.Fatalf("packed by %v", by)
	}
	late, err := db.View(pods) // of the same process
	must(t, err)
	// Every object changes: the journal has the old ones.
	var changed []runtime.Object
	for i, o := range objs {
		o := o.(*corev1.Pod).DeepCopy()
		o.ResourceVersion = fmt.Sprint(1000 + i)
		o.Status.Message = fmt.Sprint("changed ", i)
		changed = append(changed, o)
	}
	put(changed)
	if by := packedBy(t, s); by[format.Dictionary] != 100 {
		t.Fatalf("packed by %v", by)
	}
	serves(t, newClaimed(late), changed)
	for range 2 {
		serves(t, s, changed)
		var next, prev []any
		for _, e := range journalFrom(t, s, 1) {
			o, err := e.Object()
			must(t, err)
			if e.Type == cache.Updated {
				b, err := e.Previous()
				must(t, err)
				next, prev = append(next, o), append(prev, b)
			}
		}
		sameObjects(t, "journal", next, asAny(changed))
		sameObjects(t, "journal's previous", prev, asAny(objs))
		open(CompressionNone)
	}
}

func asAny(objs []runtime.Object) (out []any) {
	for _, o := range objs {
		out = append(out, o)
	}
	return out
}

// TestRelistComparesContent: after a restore of the server, content is compared,
// however it is packed.
func TestRelistComparesContent(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, podClaim())
	objs := somePods(0, 120)
	relist(t, s, "100", RelistOptions{}, objs, 50)
	closeTest(t, db)
	db = openTest(t, path, Options{Compression: CompressionZstd})
	s = claimTest(t, db, podClaim())
	objs[7] = objs[7].(*corev1.Pod).DeepCopy()
	objs[7].(*corev1.Pod).Status.Message = "other content, same version"
	entries, r := relist(t, s, "90", RelistOptions{NewTimeline: true}, objs, 50)
	if len(entries) != 1 || r.Changed != 1 {
		t.Fatalf("%d entries, %d changed", len(entries), r.Changed)
	}
	if by := packedBy(t, s); by[format.NotPacked] != 119 || by[format.Dictionary] != 1 {
		t.Fatalf("packed by %v", by)
	}
	serves(t, s, objs)
}

// TestPackConcurrently packs and unpacks in many goroutines.
func TestPackConcurrently(t *testing.T) {
	o := Options{Compression: CompressionZstd, Window: time.Millisecond, Durability: DurabilityProcess}
	db := openTest(t, testPath(t), o)
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
	if n := s.reader.hot.lru.Len(); n > 11 || n < 4 {
		t.Fatalf("%d pods of 5 KB are hot in 200 KB", n)
	}
}

func FuzzPacked(f *testing.F) {
	sample, err := somePods(0, 1)[0].(*corev1.Pod).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pack.Pack(sample), len(sample))
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		if size < 0 || size > 1<<20 {
			return
		}
		if got, err := pack.Unpack(b, size, nil); err == nil && len(got) != size {
			t.Fatalf("%d bytes, not %d", len(got), size)
		}
		r := &format.Record{Packed: format.Dictionary, Size: size, Payload: b, UID: "u", ResourceVersion: "1"}
		raw, err := r.Encode(1, "a/b")
		if err != nil {
			t.Fatal(err)
		}
		_, again, err := format.Owner(1).ParseRecord(index.AppendKey(nil, "a/b"), raw)
		if err != nil || again.Size != size || again.Packed != r.Packed || !bytes.Equal(again.Payload, b) {
			t.Fatalf("%+v %v", again, err)
		}
	})
}

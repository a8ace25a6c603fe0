package boltstore

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
)

// TestBlocksAreSmall: a reader of the journal has one block in memory at a time. So a
// block has half a MiB of unpacked records at most, however large the commit or relist
// that wrote it, and however small its packed records.
func TestBlocksAreSmall(t *testing.T) {
	for _, c := range []Compression{CompressionNone, CompressionZstd} {
		for _, how := range []string{"commit", "relist", "staged relist"} {
			t.Run(fmt.Sprint("compression ", c, ", ", how), func(t *testing.T) {
				db := openTest(t, testPath(t), Options{Compression: c})
				s := claimTest(t, db, podClaim())
				const n = 700
				objs := somePods(0, n)
				relist(t, s, "1000", RelistOptions{}, objs, 100)
				from := s.State().Seq + 1
				changed := objs[:n/2]
				if how == "staged relist" {
					setMaxCommitBytes(db, 1<<20)
				}
				var again []runtime.Object
				var changes []*Change
				for i, o := range objs {
					p := o.DeepCopyObject().(*corev1.Pod)
					if i < len(changed) {
						p.ResourceVersion = fmt.Sprint(2000 + i)
						ch, err := s.Feed.Prepare(cache.Updated, p)
						if err != nil {
							t.Fatal(err)
						}
						changes = append(changes, ch)
					}
					again = append(again, p)
				}
				if how == "commit" {
					p := &testProducer{}
					s.Feed.Attach(p)
					p.put(&Batch{Changes: changes, ResourceVersion: "3000"})
					s.wake(true)
					p.wait(t)
				} else {
					relist(t, s, "3000", RelistOptions{}, again, 50)
				}
				entries, blocks := 0, 0
				for seq := from; ; blocks++ {
					block, err := s.Feed.ReadJournal(seq)
					if err != nil {
						t.Fatal(err)
					}
					if len(block) == 0 {
						break
					}
					size := 0
					for _, e := range block {
						size += len(e.next) + len(e.prev)
					}
					if size > format.BlockBytes+20_000 {
						t.Errorf("a block of %d entries has %d bytes", len(block), size)
					}
					entries += len(block)
					seq = block[len(block)-1].Seq + 1
				}
				if entries != len(changed) || blocks < 3 {
					t.Errorf("%d entries in %d blocks", entries, blocks)
				}
				if rep, err := db.Check(); err != nil || !rep.Sound() {
					t.Errorf("%+v %v", rep, err)
				}
			})
		}
	}
}

// TestPagesCountUnpacked: a page of a packed file has no more objects in memory than a
// page of an unpacked file.
func TestPagesCountUnpacked(t *testing.T) {
	got := map[Compression]int{}
	for _, c := range []Compression{CompressionNone, CompressionZstd} {
		db := openTest(t, testPath(t), Options{Compression: c})
		s := claimTest(t, db, podClaim())
		relist(t, s, "1000", RelistOptions{}, somePods(0, 400), 100)
		p, err := s.Page(nil, 1000)
		if err != nil {
			t.Fatal(err)
		}
		got[c] = len(p.Objects)
	}
	if got[CompressionZstd] > 3*got[CompressionNone] {
		t.Errorf("%v objects in a page", got)
	}
}

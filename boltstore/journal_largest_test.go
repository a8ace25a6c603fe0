package boltstore

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
)

// TestLargestObject: what the file takes comes back, also from the journal with the object
// before it, and what it cannot take is refused before a commit would try it.
func TestLargestObject(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, podClaim())
	var changes []*Change
	var last *corev1.Pod
	for i, letter := range []string{"a", "b"} {
		last = somePods(0, 1)[0].(*corev1.Pod)
		last.ResourceVersion = []string{"1", "2"}[i]
		last.Annotations = map[string]string{"large": strings.Repeat(letter, format.MaxPayload-8<<10)}
		c, err := s.Feed.Prepare(cache.Updated, last)
		if err != nil {
			t.Fatal(err)
		}
		changes = append(changes, c)
	}
	p := &testProducer{}
	s.Feed.Attach(p)
	p.put(&Batch{Changes: changes, ResourceVersion: "2"})
	s.wake(true)
	p.wait(t)
	var read []*Entry
	for e, err := range s.History("") {
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, e)
	}
	if len(read) != 2 {
		t.Fatalf("%d entries", len(read))
	}
	is, err := read[1].Object()
	if err != nil || is.(*corev1.Pod).Annotations["large"] != last.Annotations["large"] {
		t.Errorf("the object did not come back: %v", err)
	}
	before, err := read[1].Previous()
	if err != nil || !strings.HasPrefix(before.(*corev1.Pod).Annotations["large"], "aaaa") {
		t.Errorf("the object before it did not come back: %v", err)
	}
	last.Annotations["large"] += strings.Repeat("b", 16<<10)
	if _, err := s.Feed.Prepare(cache.Updated, last); err == nil || !strings.Contains(err.Error(), "the largest") {
		t.Errorf("a larger one: %v", err)
	}
	// the queue then tells the delete without a final state
	if _, err := s.Feed.Prepare(cache.Deleted, last); err == nil {
		t.Error("the final state of a larger one is taken")
	}
}

// TestManyEmptyEntries: a block has a bounded number of entries, also if they have no
// records, as deletes of damaged ones.
func TestManyEmptyEntries(t *testing.T) {
	drafts := slices.Repeat([]format.Draft{{Type: cache.Deleted, Key: "a/b", Unpacked: true}}, 3*format.MaxEntries)
	block := plainDrafts(1, drafts)
	got, err := format.Owner(1).UnpackBlock(7, bytes.Clone(format.Owner(1).PackBlock(7, block)))
	if err != nil || len(got) != len(block) || len(got) != format.MaxEntries {
		t.Errorf("%d of %d entries, %v", len(got), len(block), err)
	}
}

package format

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/index"
)

var owner = OwnerOf("id")

// TestOwner: a source does not take records and blocks of another source.
func TestOwner(t *testing.T) {
	for made, want := range map[Owner]bool{owner: true, OwnerOf("another"): false} {
		b, err := (&Record{Codec: 1, UID: "u", Payload: []byte("payload")}).Encode(made, "a/b")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := owner.ParseRecord(index.AppendKey(nil, "a/b"), b); (err == nil) != want {
			t.Errorf("a record of %d: %v", made, err)
		}
		if _, err := owner.UnpackBlock(7,
			made.PackBlock(7, []Draft{{Type: cache.Added, Key: "a/b"}})); (err == nil) != want {
			t.Errorf("a block of %d: %v", made, err)
		}
	}
}

func FuzzRecord(f *testing.F) {
	r := &Record{Codec: 1, ResourceVersion: "7", UID: "u", Stored: 5, Born: 3,
		Values: []IndexValues{{"namespace", []string{"a"}}}, Payload: []byte("payload")}
	b, err := r.Encode(owner, "a/b")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, "a/b")
	f.Add(b, strings.Repeat("long", 500))
	packed := &Record{Codec: 1, ResourceVersion: "7", Packed: Dictionary, Size: 100, Payload: []byte("packed")}
	if b, err = packed.Encode(owner, "a/b"); err != nil {
		f.Fatal(err)
	}
	f.Add(b, "")
	f.Fuzz(func(t *testing.T, b []byte, key string) {
		r, err := ParseUnverified(b)
		if err != nil {
			return
		}
		again, err := r.Encode(owner, key)
		if err != nil {
			t.Fatal(err)
		}
		gotKey, got, err := owner.ParseRecord(index.AppendKey(nil, key), again)
		if err != nil {
			t.Fatal(err)
		}
		if r.key = ""; len(key) > index.MaxInline {
			r.key = key
		}
		if gotKey != key || !reflect.DeepEqual(got, r) {
			t.Fatalf("%q: %+v became %+v", key, r, got)
		}
	})
}

func FuzzBlock(f *testing.F) {
	seed := owner.PackBlock(7, []Draft{{Type: cache.Added, Time: 1, Key: "a/b", Next: []byte("next")},
		{Type: cache.Deleted, Key: "", Prev: DiffOf(nil, []byte("prev"))}})
	f.Add(uint64(7), seed)
	f.Fuzz(func(t *testing.T, seq uint64, b []byte) {
		if len(b) > 5 {
			b = bytes.Clone(b)
			binary.LittleEndian.PutUint32(b[1:], owner.blockSum(seq, b))
		}
		drafts, err := owner.UnpackBlock(seq, b)
		if err != nil {
			return
		}
		again, err := owner.UnpackBlock(seq, owner.PackBlock(seq, drafts))
		if err != nil || len(again) != len(drafts) || len(drafts) > 0 && !reflect.DeepEqual(again, drafts) {
			t.Fatalf("%v: %d entries became %d", err, len(drafts), len(again))
		}
	})
}

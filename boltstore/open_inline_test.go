package boltstore

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/index"
)

// TestInlineElement: an element of an inline bucket says that its key reaches beyond the
// bucket. bbolt would make a pointer from that into memory that may belong to something
// else, and Go's garbage collector would end the process. Open finds it.
func TestInlineElement(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	relist(t, claimTest(t, db, Claim{}), "9", RelistOptions{}, []runtime.Object{configMap("default", "only", 5, nil)},
		10)
	closeTest(t, db)
	file, err := os.ReadFile(path)
	must(t, err)
	key := index.AppendKey(nil, "default/only")
	found := 0
	for at := bytes.Index(file, key); at > 0; {
		element := file[at-16 : at] // flags, place, length of the key, and of the value
		if o := binary.NativeEndian; o.Uint32(element) == 0 && o.Uint32(element[4:]) == 16 &&
			o.Uint32(element[8:]) == uint32(len(key)) {
			o.PutUint32(element[8:], 1<<16)
			found++
		}
		next := bytes.Index(file[at+1:], key)
		if next < 0 {
			break
		}
		at += 1 + next
	}
	if found == 0 {
		t.Fatal("nothing is inline")
	}
	must(t, os.WriteFile(path, file, 0o600))
	db = openTest(t, path, Options{Logger: new(logr.Discard())})
	if db.AsidePaths() == nil {
		t.Error("it was not found")
	}
	s := claimTest(t, db, Claim{})
	relist(t, s, "10", RelistOptions{}, []runtime.Object{configMap("default", "only", 5, nil)}, 10)
}

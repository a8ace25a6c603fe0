package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestHandlersOfFlippedBits: one bit has flipped in the head of a page, in its first
// element, or anywhere. Each durable handler has the pending keys that it had, or it is told
// a Reset: a page that claims to have fewer elements, or that one of its buckets is not a
// bucket, has lost something.
func TestHandlersOfFlippedBits(t *testing.T) {
	o := Options{Logger: new(logr.Discard())}
	path := testPath(t)
	db := openTest(t, path, o)
	var sources []Source
	for i := range 3 {
		src := configMaps
		src.Namespace = fmt.Sprint("ns", i)
		sources = append(sources, src)
		s := claimTest(t, db, Claim{Source: src})
		var objs []runtime.Object
		for n := range 4 {
			objs = append(objs, configMap(src.Namespace, fmt.Sprint("o", n), 10+n, nil))
		}
		relist(t, s, "20", RelistOptions{}, objs, 10)
		h, _ := claimHandler(t, s, "d")
		tookReset(t, h)
		for _, p := range pendingOf(t, h)[:2] {
			h.Acknowledge(p.Key, p.Receipt)
		}
	}
	closeTest(t, db)
	file, err := os.ReadFile(path)
	must(t, err)
	file = used(file)
	closed := func(path string, flip func()) *DB { flip(); return opened(t, path, o) }
	open := func(path string, flip func()) *DB { db := opened(t, path, o); flip(); return db }
	t.Run("closed", func(t *testing.T) { flipped(t, file, true, closed, sources) })
	t.Run("open", func(t *testing.T) { flipped(t, file, false, open, sources) })
	t.Run("closed, anywhere", func(t *testing.T) { flippedAnywhere(t, file, true, closed, sources) })
	t.Run("open, in a name", func(t *testing.T) { flippedAnywhere(t, file, false, open, sources) })
}

func opened(t *testing.T, path string, o Options) *DB {
	db, err := Open(path, o)
	must(t, err)
	return db
}

// flipped opens copies of the file, in each of which another bit flips, at rest or while
// it is open.
func flipped(t *testing.T, file []byte, atRest bool, open func(path string, flip func()) *DB, sources []Source) {
	size, every := os.Getpagesize(), 1
	if few() {
		every = 7
	}
	for at := 2 * size; at < len(file); at += size {
		if bytes.Count(file[at:at+size], []byte{0}) == size {
			continue
		}
		for bit := 8 * 8; bit < 32*8; bit += every { // flags, number of elements, length, the first element
			if length := bit/8 >= 12 && bit/8 < 16 || bit/8 >= 20; length && !atRest {
				continue // bbolt believes it, see "What is assumed" in docs/reliability.md
			}
			path := testPath(t)
			must(t, os.WriteFile(path, file, 0o600))
			db := open(path, func() { flip(t, path, file, at+bit/8, bit%8) })
			noneHasLost(t, db, sources, fmt.Sprintf("page %d, byte %d, bit %d", at/size, bit/8, bit%8))
		}
	}
}

// flippedAnywhere is flipped for random bits of all nonzero bytes, including names and
// sums, or of names alone.
func flippedAnywhere(
	t *testing.T, file []byte, atRest bool, open func(path string, flip func()) *DB, sources []Source,
) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	size := os.Getpagesize()
	var bytesInUse []int
	letter := func(b byte) bool { return b >= 'a' && b <= 'z' || b >= '0' && b <= '9' }
	for at := 2 * size; at < len(file)-1; at++ {
		if length := at%size >= 12 && at%size < 16; atRest && file[at] != 0 && !length {
			bytesInUse = append(bytesInUse, at)
		}
		if !atRest && letter(file[at-1]) && letter(file[at]) && letter(file[at+1]) { // bbolt believes lengths
			bytesInUse = append(bytesInUse, at)
		}
	}
	rounds := 1000
	if few() {
		rounds = 100
	}
	for range rounds {
		at, bit := bytesInUse[rnd.IntN(len(bytesInUse))], rnd.IntN(8)
		path := testPath(t)
		must(t, os.WriteFile(path, file, 0o600))
		db := open(path, func() { flip(t, path, file, at, bit) })
		noneHasLost(t, db, sources, fmt.Sprintf("page %d, byte %d, bit %d", at/size, at%size, bit))
	}
}

func flip(t *testing.T, path string, file []byte, at, bit int) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte{file[at] ^ 1<<bit}, int64(at))
	must(t, errors.Join(err, f.Close()))
}

// noneHasLost registers the handler of each source, and closes the file. Two of its keys are
// pending. If damage is met, the program begins again.
func noneHasLost(t *testing.T, db *DB, sources []Source, what string) {
	t.Helper()
	for _, src := range sources {
		keys, reset, err := keysOfD(db, src)
		if errors.Is(err, ErrDamaged) {
			killed(t, db)
			db = opened(t, db.path, db.opts)
			keys, reset, err = keysOfD(db, src)
		}
		want := []string{src.Namespace + "/o2", src.Namespace + "/o3"}
		if !reset && (err != nil || len(keys) != 2 || keys[0].Key != want[0] || keys[1].Key != want[1]) {
			t.Errorf("%s: %s: %+v, %v", what, src.Namespace, keys, err)
		}
	}
	if err := db.Close(); err != nil && !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
}

func keysOfD(db *DB, src Source) (keys []PendingKey, reset bool, err error) {
	s, err := db.Claim(Claim{Source: src, Example: &corev1.ConfigMap{}})
	if err != nil {
		return nil, false, err
	}
	h, err := s.Delivery.Claim("d", func(HandlerChange) {})
	if err != nil {
		return nil, false, err
	}
	if _, reset = h.ResetOwed(); reset {
		return nil, true, nil
	}
	keys, _, err = h.Keys(nil, 10)
	_, reset = h.ResetOwed() // a read that meets damage can lead to a Reset
	return keys, reset, err
}

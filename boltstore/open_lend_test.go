package boltstore

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

// generation returns objects that all have the same data.
func generation(n int) (objs []any) {
	for i := range 300 {
		objs = append(objs, configMap("ns", fmt.Sprintf("cm%03d", i), n,
			map[string]string{"generation": fmt.Sprint(n), "words": fmt.Sprint(i)}))
	}
	return objs
}

// generationOf reads all objects page by page.
func generationOf(db *DB) (gen string, n int, err error) {
	s, err := db.View(configMaps)
	if err != nil {
		return "", 0, err
	}
	for from := []byte(nil); ; {
		p, err := s.Page(from, 10)
		if err != nil {
			return "", 0, err
		}
		for _, obj := range p.Objects {
			is := obj.(*corev1.ConfigMap).Data["generation"]
			if gen == "" {
				gen = is
			}
			if n++; is != gen {
				return "", 0, fmt.Errorf("an object of generation %s beside those of %s", is, gen)
			}
		}
		if from = p.Next; from == nil {
			return gen, n, nil
		}
	}
}

func skipWithoutLending(t *testing.T) {
	if !osfile.CanUnlock || osfile.Untrusted(t.TempDir()) != "" && osfile.Untrusted(t.TempDir()) != "overlay" {
		t.Skip("the lock is held here")
	}
}

// TestReaderGivesWay: a program opens the file in the middle of a reader's long read,
// without waiting. The reader reads on until the program writes. Then it gets ErrTaken.
func TestReaderGivesWay(t *testing.T) {
	skipWithoutLending(t)
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{})
	if err := s.Replace(generation(1), "1"); err != nil {
		t.Fatal(err)
	}
	s.Release()
	closeTest(t, db)

	r, err := Open(path, Options{ReadOnly: true, GiveWay: true, Keyset: db.opts.Keyset})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	snap, err := r.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(snap, make([]byte, 5000)); err != nil {
		t.Fatal(err)
	}
	reading, goOn, read := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		read <- r.h.view(func(*bolt.Tx) error {
			close(reading)
			<-goOn
			return errors.New("what is read now says nothing")
		})
	}()
	<-reading
	w := openTest(t, path, Options{LockTimeout: -1}) // at once
	if gen, n, err := generationOf(r); gen != "1" || n != 300 || err != nil {
		t.Errorf("before the other writes: %s %d %v", gen, n, err)
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	ws := claimTest(t, w, Claim{})
	if err := ws.Replace(generation(2), "2"); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	if err := <-read; !errors.Is(err, ErrTaken) {
		t.Errorf("the read that was under way: %v", err)
	}
	if _, _, err := generationOf(r); !errors.Is(err, ErrTaken) {
		t.Errorf("after the other has written: %v", err)
	}
	if _, err := r.Check(); !errors.Is(err, ErrTaken) {
		t.Errorf("check: %v", err)
	}
	if _, err := r.Snapshot(); !errors.Is(err, ErrTaken) {
		t.Errorf("snapshot: %v", err)
	}
	if _, err := io.Copy(io.Discard, snap); !errors.Is(err, ErrTaken) {
		t.Errorf("a snapshot that was begun: %v", err)
	}
	if err := r.Err(); !errors.Is(err, ErrTaken) {
		t.Error(err)
	}
	if _, err := Open(path, Options{ReadOnly: true, GiveWay: true, LockTimeout: -1,
		Keyset: db.opts.Keyset}); !errors.Is(err, ErrLocked) {
		t.Errorf("a second reader, beside the writer: %v", err)
	}
}

// TestReaderKeepsReplacedFile: a reader reads a compacted file to its end. It has the
// old file, to which no program writes.
func TestReaderKeepsReplacedFile(t *testing.T) {
	skipWithoutLending(t)
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{})
	if err := s.Replace(generation(1), "1"); err != nil {
		t.Fatal(err)
	}
	closeTest(t, db)
	r, err := Open(path, Options{ReadOnly: true, GiveWay: true, Keyset: db.opts.Keyset})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := Compact(t.Context(), path, Options{Keyset: db.opts.Keyset, LockTimeout: -1}, nil); err != nil {
		t.Fatal(err)
	}
	if gen, n, err := generationOf(r); gen != "1" || n != 300 || err != nil {
		t.Errorf("%s %d %v", gen, n, err)
	}
}

// TestReadersWhileWritersComeAndGo: writers come and go while readers read. Each reader sees
// one state, never reports a torn read as damage, and delays no writer.
func TestReadersWhileWritersComeAndGo(t *testing.T) {
	skipWithoutLending(t)
	path := testPath(t)
	first := openTest(t, path, Options{})
	keyset := first.opts.Keyset
	closeTest(t, first)
	closeAll := func(db *DB) {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	gen := 0
	write := func(commits int) {
		db, err := Open(path, Options{Keyset: keyset, LockTimeout: 5 * time.Second, Window: time.Nanosecond,
			Durability: DurabilityProcess})
		if err != nil {
			t.Error(err)
			return
		}
		defer closeAll(db)
		s, err := db.Claim(Claim{Source: configMaps, Example: configMap("", "", 1, nil)})
		if err != nil {
			t.Error(err)
			return
		}
		defer s.Release()
		for range commits {
			gen++
			if err := s.Replace(generation(gen), fmt.Sprint(gen)); err != nil {
				t.Error(err)
			}
		}
	}
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	write(1)
	reads, taken := 0, 0
	for range rounds {
		r, err := Open(path, Options{ReadOnly: true, GiveWay: true, Keyset: keyset})
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprint(gen)
		done := make(chan struct{})
		go func() { defer close(done); write(4) }()
		for end := time.Now().Add(time.Minute); ; {
			is, n, err := generationOf(r)
			if errors.Is(err, ErrTaken) {
				taken++
				break
			}
			if err != nil || is != want || n != 300 || time.Now().After(end) {
				t.Errorf("generation %s of %s, %d objects, %v", is, want, n, err)
				break
			}
			reads++
		}
		<-done
		if _, err := r.Check(); !errors.Is(err, ErrTaken) {
			t.Errorf("check: %v", err)
		}
		closeAll(r)
	}
	t.Logf("%d reads, taken %d times", reads, taken)
}

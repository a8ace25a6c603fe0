package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/live"
	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/internal/tuning"
)

// pager takes nothing before the owner has answered, and ended.
type pager struct {
	bytes.Buffer
	begin func()
}

func (p *pager) Write(b []byte) (int, error) {
	p.begin()
	return p.Buffer.Write(b)
}

// TestHistoryInPager: a slow reader gets all of a history, and the owner does not wait
// for it.
func TestHistoryInPager(t *testing.T) {
	const n = 400 // more than the socket's buffers hold
	path, closeOwner := historyFile(t, n, 10_000)
	out := &pager{begin: sync.OnceFunc(func() {
		for answers("main.(*reader).history") { // all of it is in the spool after that
			if t.Context().Err() != nil {
				return
			}
			time.Sleep(10 * time.Millisecond) // it ends by itself, unseen
		}
		_ = closeOwner()
	})}
	code := run(t.Context(), genericiooptions.IOStreams{Out: out, ErrOut: io.Discard},
		[]string{"history", "cm", "-A", "-o", "json", "--db", path})
	if lines := strings.Count(out.String(), "\n"); code != 0 || lines != n {
		t.Errorf("exit code %d, %d of %d versions", code, lines, n)
	}
}

// answers says whether a goroutine is in that function.
func answers(function string) bool {
	var all bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&all, 2)
	return strings.Contains(all.String(), function)
}

// pieces counts what is written to it.
type pieces struct{ all, largest int }

func (p *pieces) Write(b []byte) (int, error) {
	p.all, p.largest = p.all+len(b), max(p.largest, len(b))
	return len(b), nil
}

// TestHistoryFlows: a history is printed while it is read, since all of it may be many
// times as large as the file.
func TestHistoryFlows(t *testing.T) {
	path, _ := historyFile(t, 160, 100_000)
	for _, output := range []string{"json", ""} {
		out := &pieces{}
		for range 10 { // on a busy machine all may have been read when the printer's turn comes
			*out = pieces{}
			code := run(t.Context(), genericiooptions.IOStreams{Out: out, ErrOut: io.Discard},
				[]string{"history", "cm", "-A", "-o", output, "--db", path})
			if code != 0 || out.all == 0 {
				t.Fatalf("-o %q: exit code %d, %d bytes", output, code, out.all)
			}
			if out.largest <= out.all/2 {
				break
			}
		}
		if out.largest > out.all/2 {
			t.Errorf("-o %q: %d bytes, %d in one piece", output, out.all, out.largest)
		}
	}
}

// historyFile is a file whose journal has n objects of that size. closeOwner ends the
// socket of its owner.
func historyFile(t *testing.T, n, size int) (path string, closeOwner func() error) {
	dir, err := os.MkdirTemp("", "history-") // t.TempDir's may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "f.db")
	db, err := boltstore.Open(path, boltstore.Options{Window: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Claim(boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "configmaps",
		Form: boltstore.FormTyped}, Example: &corev1.ConfigMap{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Release()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	j := fifo.New(s, nil)
	tuning.SetQueue(j, 1<<30) // nothing pops
	for i := range n {
		meta := metav1.ObjectMeta{Namespace: "web", Name: fmt.Sprint("c", i), UID: "u",
			ResourceVersion: fmt.Sprint(i + 1)}
		if err := j.Add(&corev1.ConfigMap{ObjectMeta: meta,
			Data: map[string]string{"k": strings.Repeat("x", size)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	owner, err := live.Serve(db, live.Options{})
	if err != nil {
		t.Fatal(err)
	}
	closeOwner = sync.OnceValue(owner.Close)
	t.Cleanup(func() {
		if err := closeOwner(); err != nil {
			t.Error(err)
		}
	})
	return path, closeOwner
}

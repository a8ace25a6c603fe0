package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

// pager takes nothing before the owner has ended.
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
	dir, err := os.MkdirTemp("", "history-") // t.TempDir's may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "f.db")
	db, err := boltstore.Open(path, boltstore.Options{Window: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Claim(boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}, Example: &corev1.ConfigMap{}})
	if err != nil {
		t.Fatal(err)
	}
	j := fifo.New(s, nil)
	tuning.SetQueue(j, 1<<30) // nothing pops
	const n = 400
	for i := range n { // more than the socket's buffers hold
		meta := metav1.ObjectMeta{Namespace: "web", Name: fmt.Sprint("c", i), UID: "u", ResourceVersion: fmt.Sprint(i + 1)}
		if err := j.Add(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"k": strings.Repeat("x", 10_000)}}); err != nil {
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
	closeOwner := sync.OnceValue(owner.Close)
	t.Cleanup(func() {
		if err := closeOwner(); err != nil {
			t.Error(err)
		}
		s.Release()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	out := &pager{begin: func() { _ = closeOwner() }}
	code := run(t.Context(), genericiooptions.IOStreams{Out: out, ErrOut: io.Discard}, []string{"history", "cm", "-A", "-o", "json", "--db", path})
	if lines := strings.Count(out.String(), "\n"); code != 0 || lines != n {
		t.Errorf("exit code %d, %d of %d versions", code, lines, n)
	}
}

package apifile

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
)

// large is a file with n config maps of about 10 KB.
func large(t *testing.T, n int) (*boltstore.Claimed, http.Handler) {
	t.Helper()
	db := filetest.Open(t, boltstore.Options{ObjectMemory: -1})
	s := filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{})
	objs := make([]runtime.Object, n)
	for i := range objs {
		cm := configMap("a", fmt.Sprintf("c%05d", i), i+1)
		cm.Data["fill"] = strings.Repeat(fmt.Sprintf("%04d ", i), 2000)
		objs[i] = cm
	}
	filetest.Relist(t, s, fmt.Sprint(n), objs...)
	return s, New(db, Options{})
}

// sink takes an answer and calls at before each write.
type sink struct {
	httptest.ResponseRecorder
	bytes int
	at    func()
}

func (s *sink) Write(b []byte) (int, error) {
	s.at()
	s.bytes += len(b)
	return len(b), nil
}

const protobuf = "application/vnd.kubernetes.protobuf"

// TestLargeList: a list has few objects in memory at a time. In protobuf that is so while
// other lists take the room for whole ones.
func TestLargeList(t *testing.T) {
	const n = 3000
	_, h := large(t, n)
	noRoom(t, h)
	for _, c := range [][2]string{
		{"application/json", "-1"}, {"application/json", "0"}, {asTable, "1"}, {protobuf, "1"},
		{"application/json", "2999"},
	} {
		accept, limit := c[0], c[1]
		before, most, writes := heap(), int64(0), 0
		w := &sink{}
		w.at = func() {
			if writes++; writes%1000 == 0 {
				most = max(most, heap()-before)
			}
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet,
			"/api/v1/configmaps?includeObject=Object&limit="+limit, nil)
		r.Header.Set("Accept", accept)
		h.ServeHTTP(w, r)
		if w.bytes < (n-1)*10_000 || writes < n-1 {
			t.Fatalf("%s, limit %s: %d bytes in %d writes", accept, limit, w.bytes, writes)
		}
		if most > 16<<20 { // all of it is 30 MB, and as much again decoded
			t.Errorf("%s, limit %s: the heap grew by %d MiB for a list of %d", accept, limit, most>>20, w.bytes>>20)
		}
	}
}

// TestListsInAll: the lists of many clients that take nothing leave no room for others.
// Another list is then read a little at a time, and is the same.
func TestListsInAll(t *testing.T) {
	_, h := large(t, 400)
	get := func() *http.Request {
		return httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/configmaps", nil)
	}
	whole := httptest.NewRecorder()
	h.ServeHTTP(whole, get())
	var asked sync.WaitGroup
	goOn := make(chan struct{})
	defer asked.Wait()
	defer close(goOn)
	for range room.Most / oneRead {
		begun := make(chan struct{})
		begin := sync.OnceFunc(func() { close(begun) })
		w := &sink{at: func() { begin(); <-goOn }}
		asked.Go(func() { h.ServeHTTP(w, get()) })
		<-begun
	}
	before, most, writes := heap(), int64(0), 0
	w := &sink{}
	w.at = func() {
		if writes++; writes%100 == 0 {
			most = max(most, heap()-before)
		}
	}
	h.ServeHTTP(w, get())
	if w.bytes != whole.Body.Len() || writes < 300 || most > 2<<20 { // all of it is 4 MB, and as much again decoded
		t.Errorf("%d bytes of %d, in %d writes: the heap grew by %d KiB", w.bytes, whole.Body.Len(), writes, most>>10)
	}
	again := httptest.NewRecorder()
	h.ServeHTTP(again, get())
	if again.Body.String() != whole.Body.String() {
		t.Error("they differ")
	}
}

// TestInitialEventsInAll: the initial events of a watch take their part of the room, and
// leave it to others after that.
func TestInitialEventsInAll(t *testing.T) {
	_, h := large(t, 8)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var parts []int64
	w := &sink{}
	w.at = func() {
		if parts = append(parts, room.Held()); room.Held() == 0 {
			cancel()
		}
	}
	const path = "/api/v1/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
	other := func(n int64) bool { return n != oneRead }
	if last := len(parts) - 1; last < 2 || parts[last] != 0 || slices.ContainsFunc(parts[:last], other) {
		t.Errorf("%d", parts)
	}
}

// TestLargeListCompressed: a large list is compressed for clients that accept it, with
// the same content.
func TestLargeListCompressed(t *testing.T) {
	_, h := large(t, 300)
	plain := ask(t, h, http.MethodGet, "/api/v1/configmaps")
	packed := ask(t, h, http.MethodGet, "/api/v1/configmaps", "Accept-Encoding", "gzip")
	if packed.header.Get("Content-Encoding") != "gzip" || len(packed.body) > len(plain.body)/4 {
		t.Fatalf("%v, %d bytes", packed.header, len(packed.body))
	}
	zr, err := gzip.NewReader(strings.NewReader(packed.body))
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(zr); err != nil || string(body) != plain.body {
		t.Errorf("unpacked they differ: %v", err)
	}
}

// noRoom asks for lists in protobuf that nobody takes, until another large one has no room.
func noRoom(t *testing.T, h http.Handler) {
	t.Helper()
	var asked sync.WaitGroup
	goOn := make(chan struct{})
	t.Cleanup(func() { close(goOn); asked.Wait() })
	for range 2 { // of 28 MB each; there is room for 64
		begun := make(chan struct{})
		begin := sync.OnceFunc(func() { close(begun) })
		w := &sink{at: func() { begin(); <-goOn }}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/configmaps", nil)
		r.Header.Set("Accept", protobuf)
		asked.Go(func() { h.ServeHTTP(w, r) })
		<-begun
	}
}

// TestLargeListInProtobuf: a list that is read twice is the same as one that was in memory.
func TestLargeListInProtobuf(t *testing.T) {
	const n = 3000
	_, h := large(t, n)
	forms := []string{protobuf, protobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
	var whole []string
	for _, form := range forms {
		whole = append(whole, ask(t, h, http.MethodGet, "/api/v1/configmaps", "Accept", form).body)
	}
	noRoom(t, h)
	for i, form := range forms {
		if body := ask(t, h, http.MethodGet, "/api/v1/configmaps", "Accept", form).body; body != whole[i] ||
			len(body) < 30*n {
			t.Errorf("%s: %d bytes, not the same %d", form, len(body), len(whole[i]))
		}
	}
}

// TestProtobufWithoutRoom: a list in protobuf that has no room, and that nobody takes, is not
// in memory.
func TestProtobufWithoutRoom(t *testing.T) {
	_, h := large(t, 3000)
	noRoom(t, h)
	live := func() uint64 {
		var m goruntime.MemStats
		goruntime.GC()
		goruntime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, held := live(), uint64(0)
	w := &sink{}
	w.at = func() {
		if held == 0 {
			held = live()
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/configmaps", nil)
	r.Header.Set("Accept", protobuf)
	h.ServeHTTP(w, r)
	if grown := int64(held) - int64(before); grown > 14<<20 {
		t.Errorf("%d bytes are in memory, of %d", grown, w.bytes)
	}
}

// TestContentsGoMeanwhile: a list whose contents are removed while it is sent breaks
// off. It does not end like a complete list.
func TestContentsGoMeanwhile(t *testing.T) {
	for accept, n := range map[string]int{"application/json": 300,
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1": 2000, asTable: 2000} {
		s, h := large(t, n)
		w := &sink{}
		gone := false
		w.at = func() {
			if !gone {
				gone = true
				if err := s.Upstream.Empty(); err != nil {
					t.Error(err)
				}
			}
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/configmaps", nil)
		r.Header.Set("Accept", accept)
		func() {
			defer func() {
				if recover() != http.ErrAbortHandler {
					t.Errorf("%s: the list ended in good order after %d bytes", accept, w.bytes)
				}
			}()
			h.ServeHTTP(w, r)
		}()
	}
}

package boltstore

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// Golden files were written by released programs. They are never written again: a new
// format gets new files beside them. Each is the file, gzipped, and its content as
// text.
//
//	go test ./boltstore -run TestGolden -write-golden
//
// writes the missing files of the current format.
var writeGolden = flag.Bool("write-golden", false, "write the golden files of the current format that are missing")

var (
	goldenWidgets = Source{Group: "example.com", Version: "v1", Resource: "widgets", Form: FormUnstructured}
	goldenKinds   = []goldenKind{
		{"plain", Options{}, makeGolden, goldenText},
		{"compressed", Options{Compression: CompressionZstd}, makeGolden, goldenText},
		{"encrypted", Options{Compression: CompressionZstd, Keyset: sealtest.Keyset()}, makeGolden, goldenText},
		{"written-plain", Options{}, makeGoldenWritten, goldenWrittenText},
		{"written-compressed", Options{Compression: CompressionZstd}, makeGoldenWritten, goldenWrittenText},
		{"written-encrypted", Options{Compression: CompressionZstd, Keyset: sealtest.Keyset()}, makeGoldenWritten,
			goldenWrittenText},
	}
)

// goldenKind is a kind of golden file: how it is opened and made, and its content as
// text.
type goldenKind struct {
	name    string
	options Options
	make    func(t *testing.T, path string, o Options)
	text    func(t *testing.T, db *DB) string
}

func goldenName(format int, kind string) string {
	return filepath.Join("testdata", "golden", fmt.Sprintf("format%d-%s", format, kind))
}

func goldenWidget(i int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"namespace": "shop", "name": fmt.Sprint("widget", i),
			"uid": fmt.Sprint("uid-widget", i), "resourceVersion": fmt.Sprint(100 + i)},
		"spec": map[string]any{"size": int64(i), "ratio": 1.5, "tags": []any{"a", true, nil, "é\x00"}}}}
}

// makeGolden uses a file in every way that leaves something in it.
func makeGolden(t *testing.T, path string, o Options) {
	t.Helper()
	o.Window, o.JournalBytes = time.Nanosecond, 1
	db, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	n := 12
	s := claimTest(t, db, Claim{Indexers: indexers,
		IndexVersions: map[string]string{"words": "1", "long": "1", "": "1"}})
	srv := server{}
	for i := range n {
		srv.set(configMap("shop", fmt.Sprintf("cm%02d", i), i+1, map[string]string{"words": fmt.Sprint("w", i%3, ",x"),
			"long": map[bool]string{true: strings.Repeat("long", 1000)}[i == 5],
			"text": strings.Repeat(fmt.Sprint("some text of ", i, ". "), 20)}))
	}
	s.Upstream.NoteFacts(func(f *listing.Facts) {
		f.Server = listing.Server{ClusterUID: "cluster-uid", Address: "https://server:6443"}
	})
	relist(t, s, "500", RelistOptions{}, srv.list(), 60)
	p := &testProducer{}
	s.Feed.Attach(p)
	behind, _ := claimHandler(t, s, "behind")
	tookReset(t, behind)
	for _, p := range pendingOf(t, behind)[:8] {
		behind.Acknowledge(p.Key, p.Receipt)
	}
	rv := 500
	put := func(name string) {
		rv++
		p.add(t, s, configMap("shop", name, rv, map[string]string{"words": "changed"}))
		p.wait(t)
	}
	put("cm01")
	put("cm01")
	c, err := s.Feed.Prepare(cache.Deleted, srv["shop/cm02"])
	if err != nil {
		t.Fatal(err)
	}
	p.put(&Batch{Changes: []*Change{c}, ResourceVersion: "504"})
	s.wake(true)
	p.wait(t)
	s.Delivery.SetTold(3)
	rv = 504
	for range 6 {
		put("cm03")
	}
	claimHandler(t, s, "new")
	work, _ := claimHandler(t, s, "at work")
	handled(t, work)
	put("cm04")
	put("cm05")
	for _, p := range pendingOf(t, work)[:1] {
		work.Acknowledge(p.Key, p.Receipt)
	}
	s.Release()
	w := claimTest(t, db, Claim{Source: goldenWidgets, Example: goldenWidget(0),
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}})
	for i := range 3 {
		if err := w.Add(goldenWidget(i)); err != nil {
			t.Fatal(err)
		}
	}
	w.Release()
	if _, err := db.Compact(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// goldenText returns the whole content of the file.
func goldenText(t *testing.T, db *DB) string {
	t.Helper()
	if r, err := db.Check(); err != nil || !r.Sound() {
		t.Fatalf("%+v %v", r, err)
	}
	var b strings.Builder
	object := func(o any, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, src := range []Source{configMaps, goldenWidgets} {
		var example = map[bool]Claim{true: {Source: src, Example: &corev1.ConfigMap{}, ServeOutdated: true,
			IndexVersions: map[string]string{"words": "1", "long": "1", "": "1"}, Indexers: indexers},
			false: {Source: src, Example: goldenWidget(0), ServeOutdated: true,
				Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}}}[src == configMaps]
		s := claimTest(t, db, example)
		st := s.State()
		fmt.Fprintf(&b, "%s %s %s\nversion %s of cluster %q at %q, entries up to %d, told %d\n", st.Source,
			st.APIVersion, st.Kind, st.ResourceVersion, st.ClusterUID, st.Server, st.Seq, st.Told)
		objs, err := s.ListErr()
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, o := range objs {
			lines = append(lines, object(o, nil))
		}
		slices.Sort(lines)
		fmt.Fprintln(&b, strings.Join(lines, "\n"))
		for _, name := range st.Indices {
			values := s.ListIndexFuncValues(name)
			slices.Sort(values)
			for _, v := range values {
				keys, err := s.IndexKeys(name, v)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "index %s %.20q(%d) %q\n", name, v, len(v), keys)
			}
		}
		for _, e := range journalFrom(t, s, 1) {
			fmt.Fprintln(&b, "entry", e.Seq, e.Type, e.Key, object(e.Object()), object(e.Previous()))
		}
		hs, err := s.Handlers()
		if err != nil {
			t.Fatal(err)
		}
		for _, was := range hs {
			h, _ := claimHandler(t, s, was.Name)
			fmt.Fprintf(&b, "handler %q pending %d deleted %d reset %v behind %v\n", was.Name, was.Pending,
				was.Deleted, was.Reset, was.Behind)
			for _, p := range pendingOf(t, h) {
				fmt.Fprintln(&b, "pending", p.Key, p.Seq, p.Initial, object(p.Object, nil))
				for _, gone := range p.Deleted {
					fmt.Fprintln(&b, "deleted", p.Key, gone.Seq, object(gone.Object, nil))
				}
			}
		}
		s.Release()
	}
	return b.String()
}

// TestGolden: files of every released format, and of this one, open and have their
// content.
func TestGolden(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Now())
	if *writeGolden {
		for _, kind := range goldenKinds {
			name := goldenName(formatVersion, kind.name)
			if _, err := os.Stat(name + ".db.gz"); !errors.Is(err, os.ErrNotExist) {
				continue
			}
			path := testPath(t)
			kind.make(t, path, kind.options)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			_, err = z.Write(b)
			db := openTest(t, path, kind.options)
			text := kind.text(t, db)
			if err := errors.Join(err, z.Close(), os.MkdirAll(filepath.Dir(name), 0o755),
				os.WriteFile(name+".db.gz", packed.Bytes(), 0o644),
				os.WriteFile(name+".txt", []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for format := 1; format <= formatVersion; format++ {
		for _, kind := range goldenKinds {
			t.Run(fmt.Sprint(format, " ", kind.name), func(t *testing.T) {
				name := goldenName(format, kind.name)
				f, err := os.Open(name + ".db.gz")
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				z, err := gzip.NewReader(f)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(z)
				if err != nil {
					t.Fatal(err)
				}
				want, err := os.ReadFile(name + ".txt")
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range []Options{{Keyset: kind.options.Keyset}, {Keyset: sealtest.Keyset()},
					{Keyset: sealtest.Keyset(), decrypt: true}} {
					path := testPath(t)
					if err := os.WriteFile(path, b, 0o600); err != nil {
						t.Fatal(err)
					}
					o.Clock = clk
					db, err := Open(path, o)
					if err != nil {
						t.Fatal(err)
					}
					if len(db.AsidePaths()) > 0 {
						t.Fatal("it was set aside")
					}
					if got := kind.text(t, db); got != string(want) {
						t.Errorf("it holds\n%s\nnot\n%s", got, want)
					}
					if err := db.Close(); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

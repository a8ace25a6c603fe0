package boltstore

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore/internal/format"
)

// goldenHidden is a source with objects that a later transform refuses.
var goldenHidden = Source{Version: "v1", Resource: "configmaps", Namespace: "hidden", Form: FormTyped}

// goldenLocal is a source that a program fills.
var goldenLocal = Source{Version: "v1", Resource: "configmaps", Namespace: "local", Form: FormTyped}

// written is the server's state.
func written() (srv server) {
	srv = server{}
	for i := range 60 {
		srv.set(configMap("ns", fmt.Sprintf("cm%02d", i), i+1,
			map[string]string{"words": fmt.Sprint("w", i%3),
				"text": strings.Repeat(fmt.Sprint("some text of ", i, ". "), 6)}))
	}
	srv.set(configMap("ns", "odd1", 70, map[string]string{"words": "w"}), configMap("ns", "odd2", 71, nil))
	return srv
}

// makeGoldenWritten makes a file with unstored objects and, of the program itself, one object.
func makeGoldenWritten(t *testing.T, path string, o Options) {
	t.Helper()
	o.Window = time.Nanosecond
	bad := []string{"odd1", "odd2"}
	open := func(c Claim) (*DB, *Claimed) {
		db, err := Open(path, o)
		if err != nil {
			t.Fatal(err)
		}
		return db, claimTest(t, db, c)
	}
	end := func(db *DB, s *Claimed) {
		s.Release()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	db, s := open(failing(&bad))
	srv := written()
	delete(srv, "ns/cm03")
	delete(srv, "ns/cm04")
	relist(t, s, "90", RelistOptions{}, srv.list(), 100)
	srv = written()
	relistSome(t, s, "100", RelistOptions{Transform: refusing("cm03", "cm04")}, srv.list())
	srv.set(configMap("ns", "cm05", 101, nil), configMap("ns", "cm06", 102, nil))
	relistSome(t, s, "110", RelistOptions{Transform: refusing("cm03", "cm05")}, srv.list())
	p := &testProducer{}
	s.Feed.Attach(p)
	event(t, s, p, "Updated", configMap("ns", "cm07", 111, nil), errRefused)
	if by := packedBy(t, s); o.Compression == CompressionZstd && by[format.Dictionary] < 20 {
		t.Fatalf("packed by %v", by)
	}
	end(db, s)
	for _, version := range []string{"1", "2"} {
		db, s := open(Claim{Source: goldenHidden, Indexers: indexers})
		s.SetTransformVersion(version)
		var all []runtime.Object
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, configMap("hidden", name, 5, map[string]string{"words": name}))
		}
		transform := refusing()
		if version == "2" {
			transform = refusing("b")
		}
		relistSome(t, s, "10"+version, RelistOptions{Transform: transform}, all)
		end(db, s)
	}
	db, s = open(Claim{Source: goldenLocal, Indexers: indexers})
	if err := s.Add(configMap("local", "mine", 1, map[string]string{"words": "x"})); err != nil {
		t.Fatal(err)
	}
	end(db, s)
}

// goldenWrittenText returns the whole content, and the changes that handlers are told
// when the server shows each object in another state, or no longer.
func goldenWrittenText(t *testing.T, db *DB) string {
	t.Helper()
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
	sorted := func(what string, lines []string) {
		slices.Sort(lines)
		fmt.Fprintf(&b, "%s\n%s\n", what, strings.Join(lines, "\n"))
	}
	bad := []string{"odd1", "odd2"}
	sound := func() {
		if r, err := db.Check(); err != nil || !r.Sound() {
			t.Fatalf("%+v %v", r, err)
		}
	}
	for _, src := range []Source{configMaps, goldenHidden, goldenLocal} {
		sound()
		c := failing(&bad)
		if src != configMaps {
			c = Claim{Source: src, Indexers: indexers}
		}
		s := claimTest(t, db, c)
		if src == goldenHidden {
			s.SetTransformVersion("2")
		}
		st := s.State()
		fmt.Fprintf(&b, "%s at version %s, %d not stored, %d not indexed, local %t\n",
			st.Source, st.ResourceVersion, st.Unstored, st.Unindexed, s.metaNow().Local)
		sorted("noted", notedOf(t, s.Store))
		objs, err := s.ListErr()
		if err != nil {
			t.Fatal(err)
		}
		var read []string
		for _, o := range objs {
			read = append(read, object(o, nil))
		}
		sorted("read", read)
		for _, name := range st.Indices {
			var lines []string
			for _, v := range s.ListIndexFuncValues(name) {
				keys, err := s.IndexKeys(name, v)
				if err != nil {
					t.Fatal(err)
				}
				slices.Sort(keys)
				lines = append(lines, fmt.Sprintf("%q %q", v, keys))
			}
			sorted("index "+name, lines)
		}
		page, err := s.Delivery.ServerPage(nil, 1000)
		if err != nil {
			t.Fatal(err)
		}
		var shown []string
		for _, o := range page.Objects {
			shown = append(shown, object(o, nil))
		}
		sorted("shown", shown)
		var next []runtime.Object
		rv := 200
		if src == configMaps {
			srv := written()
			for _, key := range sortedKeys(srv) {
				if i := rv - 200; i < 7 || i >= 60 { // what is noted
					o := srv[key].DeepCopy()
					o.ResourceVersion, o.Data = fmt.Sprint(rv), map[string]string{"words": "next"}
					next = append(next, o)
				}
				rv++
			}
		} else if src == goldenHidden {
			next = append(next, configMap("hidden", "a", 5, map[string]string{"words": "a"}))
		}
		var told []string
		for _, e := range relistSome(t, s, "300", RelistOptions{}, next) {
			told = append(told, fmt.Sprint(e.Key, " ", e.Type, " ", object(e.Previous()), " ", object(e.Object())))
		}
		sorted("told", told)
		sorted("noted then", notedOf(t, s.Store))
		sound()
		s.Release()
	}
	return b.String()
}

package index_test

import (
	"bytes"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/index"
	bolt "go.etcd.io/bbolt"
)

// FuzzEntries reads its input as a program that sets and removes values,
// looks them up and lists them, and runs it against a bbolt bucket and a map.
func FuzzEntries(f *testing.F) {
	f.Add([]byte("\x00\x01a\x01b\x02\x01a\x03\x01\x01a\x01b"))
	f.Add([]byte("\x00\x02\x00\xff\x02\x00\x00\x00\x02\x00\x00\x02\x00\x01\x03\x02\x02\x00\xff"))
	f.Add([]byte("\x00\xf1v\xf2k\x00\xf1v\xf3k\x03\x02\xf1v\x01\xf1v\xf2k\x03"))
	f.Add([]byte("\x00\x00\x00\x02\x00\x03\x00\xf4\x00\xf4\x00\x03"))
	db, err := bolt.Open(filepath.Join(f.TempDir(), "fuzz.db"), 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { db.Close() })
	f.Fuzz(func(t *testing.T, program []byte) {
		tx, err := db.Begin(true)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		bucket, err := tx.CreateBucket([]byte("entries"))
		if err != nil {
			t.Fatal(err)
		}
		m := machine{t: t, b: bucket, model: map[string]map[string]bool{}, program: program}
		for len(m.program) > 0 {
			m.step()
		}
		m.list()
		for v := range m.model {
			m.lookup(v)
		}
	})
}

type machine struct {
	t       *testing.T
	b       *bolt.Bucket
	model   map[string]map[string]bool // value to keys
	program []byte
}

func (m *machine) byte() byte {
	if len(m.program) == 0 {
		return 0
	}
	b := m.program[0]
	m.program = m.program[1:]
	return b
}

// string reads a length and as many bytes; lengths from 0xF0 on stand for
// strings around and above the limit, made by repeating the next byte.
func (m *machine) string() string {
	n := int(m.byte())
	if n >= 0xF0 {
		return strings.Repeat(string(m.byte()), index.MaxInline-2+n-0xF0)
	}
	n = min(n, len(m.program))
	s := string(m.program[:n])
	m.program = m.program[n:]
	return s
}

func (m *machine) step() {
	switch m.byte() % 4 {
	case 0:
		v, k := m.string(), m.string()
		if err := m.b.Put(index.AppendEntry(nil, v, k), index.EntryData(v, k)); err != nil {
			m.t.Fatal(err)
		}
		if m.model[v] == nil {
			m.model[v] = map[string]bool{}
		}
		m.model[v][k] = true
	case 1:
		v, k := m.string(), m.string()
		if err := m.b.Delete(index.AppendEntry(nil, v, k)); err != nil {
			m.t.Fatal(err)
		}
		delete(m.model[v], k)
		if len(m.model[v]) == 0 {
			delete(m.model, v)
		}
	case 2:
		m.lookup(m.string())
	case 3:
		m.list()
	}
}

func (m *machine) lookup(value string) {
	got := map[string]bool{}
	prefix := index.Prefix(nil, value)
	c := m.b.Cursor()
	for k, data := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, data = c.Next() {
		v, key, err := index.ParseEntry(k, data)
		if err != nil {
			m.t.Fatal(err)
		}
		if v != value {
			m.t.Fatalf("%.40q among the entries of %.40q", v, value)
		}
		got[key] = true
	}
	if want := m.model[value]; len(want)+len(got) > 0 && !maps.Equal(got, want) {
		m.t.Fatalf("keys of %.40q: %.100q, want %.100q", value, slices.Sorted(maps.Keys(got)),
			slices.Sorted(maps.Keys(want)))
	}
}

// list steps from value to value, which must come in order while inline.
func (m *machine) list() {
	var got []string
	c := m.b.Cursor()
	for k, data := c.First(); k != nil; {
		v, _, err := index.ParseEntry(k, data)
		if err != nil {
			m.t.Fatal(err)
		}
		got = append(got, v)
		k, data = c.Seek(index.Next(index.Prefix(nil, v)))
	}
	short := slices.DeleteFunc(slices.Clone(got), func(v string) bool { return len(v) > index.MaxInline })
	if !slices.IsSorted(short) || !slices.Equal(short, got[:len(short)]) {
		m.t.Fatalf("values out of order: %.100q", got)
	}
	slices.Sort(got)
	if want := slices.Sorted(maps.Keys(m.model)); !slices.Equal(got, want) {
		m.t.Fatalf("values %.100q, want %.100q", got, want)
	}
}

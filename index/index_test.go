package index_test

import (
	"bytes"
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/index"
)

// samples are strings that a careless form would lose or mix up.
var samples = []struct{ name, s string }{
	{"empty", ""},
	{"plain", "default/nginx"},
	{"prefix of plain", "default"},
	{"prefix with separator", "default/"},
	{"NUL", "\x00"},
	{"two NULs", "\x00\x00"},
	{"inner NUL", "a\x00b"},
	{"trailing NUL", "a\x00"},
	{"NUL and 0xFF", "a\x00\xffb"},
	{"terminator and tag", "a\x00\x00\x01b"},
	{"one", "\x01"},
	{"0xFF", "\xff"},
	{"many 0xFF", "\xff\xff\xff"},
	{"not UTF-8", "\xc3\x28\xfe"},
	{"at the limit", strings.Repeat("x", index.MaxInline)},
	{"at the limit, all NUL", strings.Repeat("\x00", index.MaxInline)},
	{"one above the limit", strings.Repeat("x", index.MaxInline+1)},
	{"one above the limit, other", strings.Repeat("x", index.MaxInline) + "y"},
	{"longer than a bbolt key", strings.Repeat("long", 20_000)},
}

func TestKeysComeBack(t *testing.T) {
	seen := map[string]string{}
	for _, c := range samples {
		t.Run(c.name, func(t *testing.T) {
			b := index.AppendKey([]byte("dst"), c.s)
			if !bytes.HasPrefix(b, []byte("dst")) {
				t.Fatalf("dst overwritten: %q", b)
			}
			b = b[3:]
			if len(b) == 0 || len(b) > 32<<10 {
				t.Fatalf("%d bytes: bbolt refuses the key", len(b))
			}
			if other, ok := seen[string(b)]; ok {
				t.Fatalf("same item key as %s", other)
			}
			seen[string(b)] = c.name
			key, inline, err := index.ParseKey(b)
			if err != nil {
				t.Fatal(err)
			}
			if wantInline := len(c.s) <= index.MaxInline; inline != wantInline || inline && key != c.s || !inline &&
				key != "" {
				t.Fatalf("ParseKey = %q, %v", key, inline)
			}
		})
	}
}

func TestEntriesComeBack(t *testing.T) {
	for _, v := range samples {
		for _, k := range samples {
			t.Run(v.name+"/"+k.name, func(t *testing.T) {
				entry, data := index.AppendEntry(nil, v.s, k.s), index.EntryData(v.s, k.s)
				if len(entry) > 32<<10 {
					t.Fatalf("%d bytes: bbolt refuses the key", len(entry))
				}
				if inline := len(v.s) <= index.MaxInline && len(k.s) <= index.MaxInline; inline != (data == nil) {
					t.Fatalf("inline %v, but data of %d bytes", inline, len(data))
				}
				value, key, err := index.ParseEntry(entry, data)
				if err != nil || value != v.s || key != k.s {
					t.Fatalf("ParseEntry = %.20q, %.20q, %v", value, key, err)
				}
			})
		}
	}
}

func TestPrefixSelectsExactlyItsValue(t *testing.T) {
	for _, a := range samples {
		p := index.Prefix(nil, a.s)
		for _, b := range samples {
			for _, k := range samples {
				e := index.AppendEntry(nil, b.s, k.s)
				if got, want := bytes.HasPrefix(e, p), a.s == b.s; got != want {
					t.Errorf("entry of %s under prefix of %s: %v", b.name, a.name, got)
				}
				if bytes.HasPrefix(e, p) && bytes.Compare(e, index.Next(p)) >= 0 {
					t.Errorf("entry of %s is not below Next", b.name)
				}
			}
		}
	}
}

func TestInlineEntriesKeepOrder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	random := func() string {
		b := make([]byte, rnd.IntN(6))
		for i := range b {
			b[i] = []byte{0, 1, 'a', 'b', 0xFE, 0xFF}[rnd.IntN(6)]
		}
		return string(b)
	}
	for range 50_000 {
		v1, k1, v2, k2 := random(), random(), random(), random()
		want := cmp.Or(strings.Compare(v1, v2), strings.Compare(k1, k2))
		if got := bytes.Compare(index.AppendEntry(nil, v1, k1), index.AppendEntry(nil, v2, k2)); got != want {
			t.Fatalf("(%q, %q) and (%q, %q) compare as %d, their entries as %d", v1, k1, v2, k2, want, got)
		}
	}
}

func TestNext(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"a", "b"}, {"a\xff", "b"}, {"a\xff\xff", "b"}, {"a\x00", "a\x01"},
	} {
		in := []byte(c.in)
		if got := index.Next(in); string(got) != c.want {
			t.Errorf("Next(%q) = %q, want %q", c.in, got, c.want)
		}
		if string(in) != c.in {
			t.Errorf("Next changed its argument to %q", in)
		}
	}
}

func TestDiff(t *testing.T) {
	for _, c := range []struct{ name, old, new, removed, added string }{
		{"nothing", "", "", "", ""},
		{"same", "a", "a", "", ""},
		{"same set", "a b", "b a", "", ""},
		{"duplicates", "a a b", "b b c c", "a", "c"},
		{"first", "", "a", "", "a"},
		{"last", "a", "", "a", ""},
		{"replaced", "a", "b", "a", "b"},
		{"empty value", "-", "- a", "", "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := func(s string) (out []string) {
				for _, f := range strings.Fields(s) {
					out = append(out, strings.TrimPrefix(f, "-"))
				}
				return out
			}
			removed, added := index.Diff(set(c.old), set(c.new))
			if !slices.Equal(removed, set(c.removed)) || !slices.Equal(added, set(c.added)) {
				t.Fatalf("removed %q, added %q", removed, added)
			}
		})
	}
}

func TestDamageIsReported(t *testing.T) {
	long := strings.Repeat("x", index.MaxInline+1)
	hashed, data := index.AppendEntry(nil, "v", long), index.EntryData("v", long)
	for _, c := range []struct {
		name string
		k, v []byte
	}{
		{"empty", nil, nil},
		{"unknown tag", []byte("\x03v\x00\x00\x01k"), nil},
		{"value without end", []byte("\x01value"), nil},
		{"value ends in half a terminator", []byte("\x01value\x00"), nil},
		{"bad escape", []byte("\x01v\x00\x02\x00\x00\x01k"), nil},
		{"no key", []byte("\x01v\x00\x00"), nil},
		{"short hash", []byte("\x01v\x00\x00\x02k"), nil},
		{"inline key too long", []byte("\x01v\x00\x00\x01" + long), nil},
		{"hashed without data", hashed, nil},
		{"data cut", hashed, data[:len(data)-1]},
		{"data too long", hashed, append(bytes.Clone(data), 0)},
		{"data of another entry", hashed, index.EntryData("w", long)},
		{"data under an inline entry", index.AppendEntry(nil, "v", "k"), []byte{1}},
		{"an inline value that is too long",
			append(append([]byte{1}, bytes.Repeat([]byte("x"), index.MaxInline+1)...), 0, 0, 1), nil},
		{"data with huge length", hashed, []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if value, key, err := index.ParseEntry(c.k, c.v); !errors.Is(err, index.ErrMalformed) {
				t.Fatalf("ParseEntry = %q, %q, %v", value, key, err)
			}
		})
	}
}

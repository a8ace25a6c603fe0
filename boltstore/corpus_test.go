package boltstore

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// The corpus test damages a file in many ways. For each, a full read returns what was
// stored or reports damage. It never crashes, hangs or returns a wrong object. Children
// do the reading, since damage can crash in ways that Go cannot contain.

const corpusEnv = "KUBEWAKE_TEST_CORPUS"

// corpus is a file in two states, with the content of the later one.
type corpus struct {
	before, after []byte
	want, old     map[string]string // see corpusContent; of the later and the earlier state
	first         map[string]string // free pages may still have it
}

func makeCorpus(t *testing.T, o Options) corpus {
	t.Helper()
	path := testPath(t)
	db, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	s := claimTest(t, db, Claim{Indexers: indexers})
	p := &testProducer{}
	s.Feed.Attach(p)
	srv := server{}
	set := func(i, rv int) {
		srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), rv,
			map[string]string{"words": fmt.Sprint(i%7, " ", rv%5), "k": strings.Repeat("v", 10*(i%40))}))
	}
	for i := range 300 {
		set(i, i+1)
	}
	relist(t, s, "500", RelistOptions{}, srv.list(), 100)
	refused := server{}
	refuse := func(i int) {
		o := configMap("ns", fmt.Sprintf("cm%03d", i), 2500+i, nil)
		refused.set(o)
		event(t, s, p, cache.Updated, o, errRefused)
	}
	first := corpusContent(srv, nil)
	for i := range 60 { // journaled
		set(i*3, 600+i)
		p.add(t, s, srv[fmt.Sprintf("ns/cm%03d", i*3)])
		p.wait(t)
	}
	for i := range 10 {
		refuse(240 + i)
	}
	c := corpus{old: corpusContent(srv, refused), first: first}
	read := func() []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	c.before = read()
	for i := range 100 {
		set(i*2, 1000+i)
	}
	delete(srv, "ns/cm007")
	delete(srv, "ns/cm151")
	set(301, 2000)
	relist(t, s, "3000", RelistOptions{}, srv.list(), 100)
	for i := range 20 {
		refuse(240 + i)
	}
	c.want = corpusContent(srv, refused)
	if by := packedBy(t, s); o.Compression == CompressionZstd && by[format.Dictionary] < 100 {
		t.Fatalf("packed by %v", by)
	}
	closeTest(t, db)
	c.after = read()
	return c
}

// corpusContent returns the file's content for each key: the readers' state, the server's
// state, and the notes.
func corpusContent(srv, refused server) map[string]string {
	m := map[string]string{}
	for k, o := range srv {
		_, m["shown "+k], _ = strings.Cut(keyAndContent(o), "=")
		m[k] = m["shown "+k]
	}
	for k, o := range refused {
		m["refused "+k] = o.ResourceVersion
	}
	return m
}

// TestCorpus runs the cases in children, and counts their outcomes.
func TestCorpus(t *testing.T) {
	if dir := os.Getenv(corpusEnv); dir != "" {
		corpusChild(dir)
		return
	}
	perKind := 2
	if few() {
		perKind = 1
	}
	if n := os.Getenv("KUBEWAKE_CORPUS"); n != "" {
		fmt.Sscan(n, &perKind)
	}
	for _, kind := range corpusKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			runCorpus(t, kind, perKind)
		})
	}
}

// corpusKind is a kind of file. Encrypted files have packed payloads, too.
type corpusKind struct {
	name    string
	options Options
}

var corpusKinds = []corpusKind{
	{"plain", Options{}},
	{"compressed", Options{Compression: CompressionZstd}},
	{"encrypted", Options{Compression: CompressionZstd, Keyset: sealtest.Keyset()}},
}

func runCorpus(t *testing.T, kind corpusKind, perKind int) {
	c := makeCorpus(t, kind.options)
	outcomes := map[string]map[string]int{}
	for k, d := range damages {
		dir := memoryDir(t)
		files := make([][]byte, perKind)
		for i := range perKind {
			b := d.do(c, rand.New(rand.NewPCG(uint64(k), uint64(i))))
			files[i] = b
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		counts := map[string]int{}
		outcomes[d.kind] = counts
		for done := 0; done < perKind; {
			got, out, err := runCorpusChild(t, kind.name, dir, done)
			for _, g := range got {
				c.judgeReader(t, d, fmt.Sprint(d.kind, " ", done), files[done], g.reader, counts)
				c.judge(t, d, fmt.Sprint(d.kind, " ", done), files[done], g.program, counts)
				done++
			}
			if done < perKind {
				counts["crash"]++
				t.Errorf("%s %d: the child died: %v: %.20000s", d.kind, done, err, out)
				done++
			} else if err != nil {
				t.Errorf("%s: the child failed: %v: %.20000s", d.kind, err, out)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
		t.Logf("%-34s %v", d.kind, counts)
	}
	sum := map[string]int{}
	for _, counts := range outcomes {
		for o, n := range counts {
			sum[o] += n
		}
	}
	t.Logf("%-34s %v", "all", sum)
	if sum["same"] == 0 || sum["reported"] == 0 {
		t.Fatal("the test does not test")
	}
}

// memoryDir is a directory in memory, if there is one. Power failures are not tested
// here (see TestPowerFailure in tests/wake).
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "kubewake")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// judge compares a child's output with the stored content: key=content pairs behind a
// word that says whether damage was reported.
//
// Without a report everything is as it was stored, with one exception. If both meta
// pages are of an earlier commit, and all their pages are still there, that commit's
// state is sound. bbolt knows no other commit then, and neither does kubewake. If only
// one meta page is old, bbolt uses the other.
//
// With a report the objects are as they were stored. They may be as in the earlier
// state if d can lead to pages of that time, since each such record verifies.
func (c corpus) judge(t *testing.T, d damage, name string, damaged []byte, line string, counts map[string]int) {
	t.Helper()
	word, rest, _ := strings.Cut(line, "\t")
	got := map[string]string{}
	stale := 0
	for _, kv := range strings.Split(rest, "\t") {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			continue
		}
		got[k] = v
		switch v {
		case c.want[k]:
		case c.old[k], c.first[k]:
			stale++
		default:
			t.Errorf("%s: a wrong object at %s", name, k)
		}
	}
	switch {
	case word == "wrong":
		t.Errorf("%s: %s", name, rest)
	case word == "sound" && slices.Contains(noticed, d.kind):
		t.Errorf("%s: it is called sound", name)
	case word == "sound" && maps.Equal(got, c.want):
		counts["same"]++
	case word == "sound" && maps.Equal(got, c.old) && c.metasRolledBack(damaged):
		counts["an earlier commit"]++
	case word == "sound":
		t.Errorf("%s: called sound, and %d of %d objects, %d of them older", name, len(got), len(c.want), stale)
	default:
		counts["reported"]++
		if stale > 0 {
			counts["older objects beside it"]++
		}
		if stale > 0 && !d.older {
			t.Errorf("%s: %d objects are older", name, stale)
		}
	}
}

// judgeReader compares what a reader was given with the stored content, as judge does.
// The reader verifies pages and records, and not that all records are there.
func (c corpus) judgeReader(t *testing.T, d damage, name string, damaged []byte, line string, counts map[string]int) {
	t.Helper()
	word, rest, _ := strings.Cut(line, "\t")
	got := map[string]string{}
	for _, kv := range strings.Split(rest, "\t") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			got[k] = v
			if v != c.want[k] && (!d.older || v != c.old[k] && v != c.first[k]) {
				t.Errorf("%s: a reader has a wrong object at %s", name, k)
			}
		}
	}
	objects := func(m map[string]string) map[string]string {
		m = maps.Clone(m)
		maps.DeleteFunc(m, func(k, _ string) bool { return strings.Contains(k, " ") })
		return m
	}
	switch {
	case word == "wrong":
		t.Errorf("%s: a reader: %s", name, rest)
	case word != "sound":
		counts["a reader was told"]++
	case maps.Equal(got, objects(c.want)) || maps.Equal(got, objects(c.old)) && c.metasRolledBack(damaged):
		counts["a reader has all"]++
	default:
		t.Errorf("%s: a reader was told nothing, and has %d of %d objects", name, len(got), len(objects(c.want)))
	}
}

func (c corpus) metasRolledBack(b []byte) bool {
	n := 2 * os.Getpagesize()
	return len(b) >= n && bytes.Equal(b[:n], c.before[:n])
}

package boltstore

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/sealtest"
	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// The corpus test damages a file in many ways. For each, a full read returns
// what was stored or reports damage: never a crash, a hang or a wrong object.
// Since damage can crash what Go cannot contain, children do the reading.

const corpusEnv = "KUBEWAKE_TEST_CORPUS"

// corpus is a file in two states, and what the later one holds.
type corpus struct {
	before, after []byte
	want, old     map[string]string // key → data; of the later and the earlier state
	first         map[string]string // of which free pages may be left
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
	s.Attach(p)
	srv := server{}
	set := func(i, rv int) {
		srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), rv, map[string]string{"words": fmt.Sprint(i%7, " ", rv%5), "k": strings.Repeat("v", 10*(i%40))}))
	}
	for i := range 300 {
		set(i, i+1)
	}
	relist(t, s, "500", RelistOptions{}, srv.list(), 100)
	first := content(srv)
	for i := range 60 { // journaled
		set(i*3, 600+i)
		p.add(t, s, srv[fmt.Sprintf("ns/cm%03d", i*3)])
		p.wait(t)
	}
	c := corpus{old: content(srv), first: first}
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
	c.want = content(srv)
	if by := packedBy(t, s); o.Compression == Zstd && by[packByDict] < 100 {
		t.Fatalf("packed by %v", by)
	}
	closeTest(t, db)
	c.after = read()
	return c
}

func content(srv server) map[string]string {
	m := map[string]string{}
	for k, o := range srv {
		m[k] = o.ResourceVersion + o.Data["words"] + o.Data["k"]
	}
	return m
}

// damage is one way to spoil the file; n makes it another one of its kind.
type damage struct {
	kind string
	do   func(c corpus, r *rand.Rand) []byte
}

func pageOf(b []byte, i int) []byte {
	n := os.Getpagesize()
	return b[i*n : (i+1)*n]
}

func pagesOf(b []byte) int { return len(b) / os.Getpagesize() }

var damages = []damage{
	{"truncated", func(c corpus, r *rand.Rand) []byte { return c.after[:r.IntN(len(c.after))] }},
	{"bit flipped", func(c corpus, r *rand.Rand) []byte {
		b := bytes.Clone(c.after)
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		return b
	}},
	{"bits flipped", func(c corpus, r *rand.Rand) []byte {
		b := bytes.Clone(c.after)
		for range 2 + r.IntN(30) {
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		}
		return b
	}},
	{"page heads flipped", func(c corpus, r *rand.Rand) []byte {
		b := bytes.Clone(c.after)
		for range 1 + r.IntN(3) {
			pageOf(b, r.IntN(pagesOf(b)))[r.IntN(64)] ^= 1 << r.IntN(8)
		}
		return b
	}},
	{"pages swapped", func(c corpus, r *rand.Rand) []byte {
		b := bytes.Clone(c.after)
		i, j := r.IntN(pagesOf(b)), r.IntN(pagesOf(b))
		copy(pageOf(b, i), pageOf(c.after, j))
		copy(pageOf(b, j), pageOf(c.after, i))
		return b
	}},
	{"pages swapped, with their numbers", func(c corpus, r *rand.Rand) []byte {
		b := bytes.Clone(c.after)
		i, j := r.IntN(pagesOf(b)), r.IntN(pagesOf(b))
		copy(pageOf(b, i)[8:], pageOf(c.after, j)[8:])
		copy(pageOf(b, j)[8:], pageOf(c.after, i)[8:])
		return b
	}},
	{"page zeroed", func(c corpus, r *rand.Rand) []byte {
		b := bytes.Clone(c.after)
		clear(pageOf(b, r.IntN(pagesOf(b))))
		return b
	}},
	{"page rolled back", func(c corpus, r *rand.Rand) []byte {
		b := bytes.Clone(c.after)
		i := r.IntN(min(pagesOf(b), pagesOf(c.before)))
		copy(pageOf(b, i), pageOf(c.before, i))
		return b
	}},
	{"pages rolled back", func(c corpus, r *rand.Rand) []byte {
		b := bytes.Clone(c.after)
		for range 2 + r.IntN(10) {
			i := r.IntN(min(pagesOf(b), pagesOf(c.before)))
			copy(pageOf(b, i), pageOf(c.before, i))
		}
		return b
	}},
	{"records swapped", func(c corpus, r *rand.Rand) []byte { return rewriteFile(c.after, r, swapRecords) }},
	{"record dropped", func(c corpus, r *rand.Rand) []byte { return rewriteFile(c.after, r, dropRecord) }},
	{"index entry dropped", func(c corpus, r *rand.Rand) []byte { return rewriteFile(c.after, r, dropEntry) }},
}

// rewrite changes the file as bbolt would, so that only we can notice.
func rewriteFile(file []byte, r *rand.Rand, fn func(src sourceTx, m *sourceMeta, r *rand.Rand) error) []byte {
	f, err := os.CreateTemp("", "corpus")
	if err != nil {
		panic(err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(file)
	if err := errors.Join(err, f.Close()); err != nil {
		panic(err)
	}
	b, err := bolt.Open(f.Name(), 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		panic(err)
	}
	err = b.Update(func(tx *bolt.Tx) error {
		h, err := handleOf(tx)
		if err != nil {
			return err
		}
		src, _ := h.source(tx, configMaps.ID())
		m, err := src.meta()
		if err != nil {
			return err
		}
		return fn(src, m, r)
	})
	if err := errors.Join(err, b.Close()); err != nil {
		panic(err)
	}
	out, err := os.ReadFile(f.Name())
	if err != nil {
		panic(err)
	}
	return out
}

// handleOf can open the sources of a file that may be encrypted.
func handleOf(tx *bolt.Tx) (*handle, error) {
	db := &DB{opts: Options{Keyset: sealtest.Keyset()}}
	var h header
	err := errors.Join(db.readKeyset(), getMsgpack(tx.Bucket(bucketFile), keyHeader, &h))
	if err == nil {
		db.h.seal, err = db.unlock(h)
	}
	return &db.h, err
}

func anyRecord(src sourceTx, m *sourceMeta, r *rand.Rand) (k, v []byte) {
	c := src.gen(m.Generation).items.b.Cursor()
	k, v = c.First()
	for range r.IntN(int(m.Items.Count)) {
		k, v = c.Next()
	}
	return bytes.Clone(k), bytes.Clone(v)
}

func swapRecords(src sourceTx, m *sourceMeta, r *rand.Rand) error {
	items := src.gen(m.Generation).items.b
	k1, v1 := anyRecord(src, m, r)
	k2, v2 := anyRecord(src, m, r)
	return errors.Join(items.Put(k1, v2), items.Put(k2, v1))
}

func dropRecord(src sourceTx, m *sourceMeta, r *rand.Rand) error {
	k, _ := anyRecord(src, m, r)
	return src.gen(m.Generation).items.b.Delete(k)
}

func dropEntry(src sourceTx, m *sourceMeta, r *rand.Rand) error {
	b := src.gen(m.Generation).indices.open("words").b
	c := b.Cursor()
	k, _ := c.First()
	for range r.IntN(100) {
		k, _ = c.Next()
	}
	return b.Delete(bytes.Clone(k))
}

// TestCorpus runs the cases in children, and counts their outcomes.
func TestCorpus(t *testing.T) {
	if dir := os.Getenv(corpusEnv); dir != "" {
		corpusChild(t, dir)
		return
	}
	perKind := 2
	if n := os.Getenv("KUBEWAKE_CORPUS"); n != "" {
		fmt.Sscan(n, &perKind)
	}
	for _, kind := range corpusKinds {
		t.Run(kind.name, func(t *testing.T) { runCorpus(t, kind, perKind) })
	}
}

// corpusKind is a kind of file. In an encrypted one all payloads are packed,
// too.
type corpusKind struct {
	name    string
	options Options
}

var corpusKinds = []corpusKind{
	{"plain", Options{}},
	{"compressed", Options{Compression: Zstd}},
	{"encrypted", Options{Compression: Zstd, Keyset: sealtest.Keyset()}},
}

func runCorpus(t *testing.T, kind corpusKind, perKind int) {
	c := makeCorpus(t, kind.options)
	outcomes := map[string]map[string]int{}
	for k, d := range damages {
		dir := memoryDir(t)
		for i := range perKind {
			b := d.do(c, rand.New(rand.NewPCG(uint64(k), uint64(i))))
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		counts := map[string]int{}
		outcomes[d.kind] = counts
		for done := 0; done < perKind; {
			got, out := runCorpusChild(t, kind.name, dir, done)
			for _, g := range got {
				c.judge(t, fmt.Sprint(d.kind, " ", done), g, counts)
				done++
			}
			if done < perKind && len(got) < perKind-done {
				counts["crash"]++
				t.Errorf("%s %d: the child died: %.20000s", d.kind, done, out)
				done++
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

// memoryDir is a directory in memory, where there is one: what a power failure
// leaves is not the point (TestPowerFailure in tests/wake).
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "kubewake")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// judge compares what a child read with what was stored: key=content pairs
// behind a word that says whether damage was reported.
func (c corpus) judge(t *testing.T, name, line string, counts map[string]int) {
	t.Helper()
	word, rest, _ := strings.Cut(line, "\t")
	got := map[string]string{}
	for _, kv := range strings.Split(rest, "\t") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			got[k] = v
		}
	}
	older := 0
	for k, v := range got {
		switch v {
		case c.want[k]:
		case c.old[k], c.first[k]:
			older++
		default:
			t.Errorf("%s: a wrong object at %s", name, k)
		}
	}
	switch {
	case word != "sound":
		counts["reported"]++
	case older == 0 && len(got) == len(c.want):
		counts["same"]++
	case len(got) == len(c.old) && equalMaps(got, c.old):
		counts["an earlier commit"]++
	default:
		t.Errorf("%s: called sound, and %d of %d objects, %d of them older", name, len(got), len(c.want), older)
	}
}

func equalMaps(a, b map[string]string) bool {
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return len(a) == len(b)
}

func runCorpusChild(t *testing.T, kind, dir string, from int) (lines []string, out string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCorpus$", "-test.timeout=5m")
	// A child with the race detector would otherwise stay for a second.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", corpusEnv+"="+dir, fmt.Sprint("KUBEWAKE_TEST_FROM=", from), "KUBEWAKE_TEST_KIND="+kind)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sc := bufio.NewScanner(stdout)
	sc.Buffer(nil, 4<<20)
	// One case takes milliseconds. A hang is told by its stack.
	hang := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
	defer hang.Stop()
	for sc.Scan() {
		hang.Reset(20 * time.Second)
		if line, ok := strings.CutPrefix(sc.Text(), "OUTCOME "); ok {
			lines = append(lines, line)
		} else if len(out) < 2000 {
			out += sc.Text() + "\n"
		}
	}
	_ = cmd.Wait() // what it did not come to is counted
	b := stderr.String()
	return lines, out + b[:min(len(b), 20000)]
}

func corpusChild(t *testing.T, dir string) {
	from := 0
	fmt.Sscan(os.Getenv("KUBEWAKE_TEST_FROM"), &from)
	var o Options
	for _, k := range corpusKinds {
		if k.name == os.Getenv("KUBEWAKE_TEST_KIND") {
			o = k.options
		}
	}
	for ; ; from++ {
		path := filepath.Join(dir, fmt.Sprint(from))
		if _, err := os.Stat(path); err != nil {
			return
		}
		word, objs := readWhole(t, path, o)
		line := "OUTCOME " + word
		for _, o := range objs {
			line += "\t" + o
		}
		fmt.Println(line)
	}
}

// readWhole does what a program does, and reads all that there is.
func readWhole(t *testing.T, path string, o Options) (word string, objs []string) {
	log := klog.NewKlogr().V(9)
	o.Logger = &log
	db, err := Open(path, o)
	if err != nil {
		return "not opened", nil
	}
	defer db.Close()
	s, err := db.Claim(Claim{Source: configMaps, Example: &corev1.ConfigMap{}, Indexers: indexers})
	if err != nil {
		return "not claimed", nil
	}
	bad := len(db.SetAside()) > 0
	list, err := s.ListErr()
	bad = bad || err != nil || s.Err() != nil
	for _, o := range list {
		cm := o.(*corev1.ConfigMap)
		key, _ := cache.MetaNamespaceKeyFunc(o)
		objs = append(objs, key+"="+cm.ResourceVersion+cm.Data["words"]+cm.Data["k"])
	}
	for seq := uint64(1); err == nil; {
		var es []*Entry
		if es, err = s.ReadJournal(seq); len(es) == 0 {
			break
		}
		seq = es[len(es)-1].Seq + 1
	}
	for _, v := range s.ListIndexFuncValues("words") {
		found, err := s.ByIndex("words", v)
		bad = bad || err != nil
		for _, o := range found {
			if values, _ := indexers["words"](o); !strings.Contains(strings.Join(values, " "), v) && s.Err() == nil {
				t.Errorf("%s: a wrong object under %s", path, v)
			}
		}
	}
	bad = bad || err != nil || len(db.SetAside()) > 0
	if err := db.h.view(func(tx *bolt.Tx) error { return verifyAll(tx, db.h.seal) }); err != nil || bad {
		return "damaged", objs
	}
	if s.metaNow().Generation == 0 {
		return "empty", objs
	}
	return "sound", objs
}

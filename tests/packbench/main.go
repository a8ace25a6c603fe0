// Command packbench measures the costs and savings of packed payloads, and writes the
// tables into bench/figures.md:
//
//	cd tests && go run ./packbench
//
// It needs Linux, which counts the bytes that a process writes.
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/podgen"
	"github.com/kubewake/kubewake/internal/tuning"
)

const (
	objects = 5000
	rounds  = 3
	page    = "bench/figures.md"
	begin   = "<!-- packing:begin -->"
	end     = "<!-- packing:end -->"
)

func main() {
	var out strings.Builder
	fmt.Fprintf(&out, "Machine: %d cores, %s/%s, %s; %d objects, medians of %d rounds.\n", runtime.NumCPU(),
		runtime.GOOS, runtime.GOARCH, runtime.Version(), objects, rounds)
	for _, kind := range kinds {
		var plain, packed []figures
		for range rounds {
			plain = append(plain, measure(kind, boltstore.CompressionNone))
			packed = append(packed, measure(kind, boltstore.CompressionZstd))
		}
		table(&out, kind.name, median(plain), median(packed))
	}
	text := out.String()
	fmt.Print(text)
	doc, err := os.ReadFile(page)
	check(err)
	head, rest, ok1 := strings.Cut(string(doc), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		log.Fatalf("%s has no %s", page, begin)
	}
	check(os.WriteFile(page, []byte(head+begin+"\n"+text+end+tail), 0o644))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

type kind struct {
	name   string
	claim  boltstore.Claim
	object func(i int) kruntime.Object
	change func(o kruntime.Object, i int) kruntime.Object
}

var pods = podgen.New(7)

var kinds = []kind{{
	name: "Pods as a cluster has them (typed, protobuf)",
	claim: boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormTyped},
		Example: &corev1.Pod{}},
	object: func(i int) kruntime.Object { p := pods.Pod(i); p.ResourceVersion = fmt.Sprint(i + 1); return p },
	change: func(o kruntime.Object, i int) kruntime.Object {
		p := o.(*corev1.Pod).DeepCopy()
		p.ResourceVersion = fmt.Sprint(1_000_000 + i)
		p.Status.ContainerStatuses[0].RestartCount++
		p.Status.ContainerStatuses[0].ContainerID = "containerd://" + hex(i, 64)
		return p
	},
}, {
	name: "The same pods, unstructured (msgpack)",
	claim: boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormUnstructured},
		Example: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}}},
	object: func(i int) kruntime.Object {
		p := pods.Pod(i)
		p.ResourceVersion = fmt.Sprint(i + 1)
		u, err := kruntime.DefaultUnstructuredConverter.ToUnstructured(p)
		check(err)
		u["apiVersion"], u["kind"] = "v1", "Pod"
		return &unstructured.Unstructured{Object: u}
	},
	change: func(o kruntime.Object, i int) kruntime.Object {
		u := o.(*unstructured.Unstructured).DeepCopy()
		u.SetResourceVersion(fmt.Sprint(1_000_000 + i))
		check(unstructured.SetNestedField(u.Object, hex(i, 64), "status", "message"))
		return u
	},
}, {
	name: "Small config maps (typed, protobuf)",
	claim: boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped},
		Example: &corev1.ConfigMap{}},
	object: func(i int) kruntime.Object {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns-", i%20),
				Name: fmt.Sprint("settings-", hex(i, 8)), UID: types.UID(hex(i+1, 32)),
				ResourceVersion: fmt.Sprint(i + 1), CreationTimestamp: metav1.Unix(1_750_000_000+int64(i)*977, 0),
				Labels: map[string]string{"app.kubernetes.io/name": fmt.Sprint("app-", i%50),
					"app.kubernetes.io/managed-by": "Helm"}},
			Data: map[string]string{"config.yaml": fmt.Sprintf("level: info\nport: %d\nhost: svc-%d.example\n",
				i%9999, i)},
		}
	},
	change: func(o kruntime.Object, i int) kruntime.Object {
		c := o.(*corev1.ConfigMap).DeepCopy()
		c.ResourceVersion = fmt.Sprint(1_000_000 + i)
		c.Data["config.yaml"] += fmt.Sprint("timeout: ", i, "\n")
		return c
	},
}, {
	name: "Custom resources (unstructured, msgpack)",
	claim: boltstore.Claim{
		Source: boltstore.Source{Group: "mq.acme.dev", Version: "v1beta2", Resource: "queues",
			Form: boltstore.FormUnstructured},
		Example: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "mq.acme.dev/v1beta2",
			"kind": "Queue"}},
	},
	object: func(i int) kruntime.Object { return &unstructured.Unstructured{Object: queue(i)} },
	change: func(o kruntime.Object, i int) kruntime.Object {
		u := o.(*unstructured.Unstructured).DeepCopy()
		u.SetResourceVersion(fmt.Sprint(1_000_000 + i))
		check(unstructured.SetNestedField(u.Object, int64(i), "status", "depth"))
		return u
	},
}}

func hex(seed, n int) string {
	r := rand.New(rand.NewPCG(uint64(seed), 3))
	b := make([]byte, n)
	for i := range b {
		b[i] = "0123456789abcdef"[r.IntN(16)]
	}
	return string(b)
}

// figures are the figures of one round, each with its name in the table.
type figures struct {
	listTime, listCPU, size        float64
	alone, aloneCPU, bulk, bulkCPU float64
	get, list, journal             float64
}

// measure fills a file by a list and then changes objects, alone and in bulk,
// journaled as a watch's events are.
func measure(k kind, c boltstore.Compression) (f figures) {
	dir, err := os.MkdirTemp("", "packbench-")
	check(err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "bench.db")
	o := boltstore.Options{Durability: boltstore.DurabilityProcess, Compression: c, Window: time.Nanosecond,
		ObjectMemory: -1}
	tuning.SetFile(&o, tuning.File{HotBytes: 1, CompactRatio: -1})
	db, err := boltstore.Open(path, o)
	check(err)
	k.claim.Indexers = cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	s, err := db.Claim(k.claim)
	check(err)
	var objs []kruntime.Object
	for i := range objects {
		objs = append(objs, k.object(i))
	}
	runtime.GC()

	start, cpu := time.Now(), cpuTime()
	r, err := s.Upstream.BeginRelist(boltstore.RelistOptions{
		OnError: func(_ kruntime.Object, err error) { check(err) }})
	check(err)
	for i := 0; i < objects; i += 500 {
		check(r.Page(objs[i : i+500]))
	}
	_, err = r.Commit("500000", time.Now())
	check(err)
	f.listTime, f.listCPU = ms(time.Since(start)), ms(cpuTime()-cpu)

	p := &producer{done: make(chan struct{})}
	wake := s.Feed.Attach(p)
	n := 0
	run := func(batches, size int) (written, cpu float64) {
		r := rand.New(rand.NewPCG(1, uint64(size)))
		w, t := bytesWritten(), cpuTime()
		for range batches {
			b := &boltstore.Batch{}
			for range size {
				i := r.IntN(objects)
				n++
				objs[i] = k.change(objs[i], n)
				c, err := s.Feed.Prepare(cache.Updated, objs[i])
				check(err)
				b.Changes = append(b.Changes, c)
			}
			p.b = b
			p.mu <- struct{}{}
			wake(true)
			<-p.done
		}
		changes := float64(batches * size)
		return float64(bytesWritten()-w) / changes / 1000, float64(cpuTime()-t) / 1000 / changes
	}
	p.mu = make(chan struct{}, 1)
	runtime.GC() // of the objects, whose cycle would count as the changes'
	f.alone, f.aloneCPU = run(500, 1)
	before := s.State().JournalBytes
	f.bulk, f.bulkCPU = run(40, 100)
	f.journal = float64(s.State().JournalBytes-before) / 4000

	var gets []float64
	for i := range 2000 {
		t := time.Now()
		_, ok, err := s.Get(objs[i*7919%objects])
		gets = append(gets, float64(time.Since(t))/1000)
		if !ok || err != nil {
			log.Fatal("get: ", ok, err)
		}
	}
	slices.Sort(gets)
	f.get = gets[len(gets)/2]
	t := cpuTime()
	if got, err := s.ListErr(); err != nil || len(got) != objects {
		log.Fatal("list: ", len(got), err)
	}
	f.list = ms(cpuTime() - t)
	s.Release()
	check(db.Close())
	res, err := boltstore.Compact(context.Background(), path, boltstore.Options{}, nil)
	check(err)
	f.size = float64(res.After) / 1e6
	return f
}

type producer struct {
	b    *boltstore.Batch
	mu   chan struct{} // holds a token while b is to be taken
	done chan struct{}
}

func (p *producer) Take(int, bool) (*boltstore.Batch, bool) {
	select {
	case <-p.mu:
		return p.b, false
	default:
		return nil, false
	}
}

func (p *producer) Committed(entries []*boltstore.Entry) {
	if len(entries) > 0 {
		p.done <- struct{}{}
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func cpuTime() time.Duration {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bytesWritten returns how many bytes the process has written to files.
func bytesWritten() (n int64) {
	b, err := os.ReadFile("/proc/self/io")
	check(err)
	for line := range strings.Lines(string(b)) {
		if _, err := fmt.Sscanf(line, "wchar: %d", &n); err == nil {
			return n
		}
	}
	log.Fatal("no wchar in /proc/self/io")
	return 0
}

func median(all []figures) (m figures) {
	of := func(get func(*figures) *float64) {
		var v []float64
		for i := range all {
			v = append(v, *get(&all[i]))
		}
		slices.Sort(v)
		*get(&m) = v[len(v)/2]
	}
	for _, r := range rows {
		of(r.get)
	}
	return m
}

var rows = []struct {
	name, format string
	get          func(*figures) *float64
}{
	{"first list: time", "%.0f ms", func(f *figures) *float64 { return &f.listTime }},
	{"first list: processor time", "%.0f ms", func(f *figures) *float64 { return &f.listCPU }},
	{"file, compacted, with the journal of the changes", "%.1f MB", func(f *figures) *float64 { return &f.size }},
	{"a change alone in its commit: written", "%.1f KB", func(f *figures) *float64 { return &f.alone }},
	{"a change alone in its commit: processor time", "%.0f µs", func(f *figures) *float64 { return &f.aloneCPU }},
	{"a change among 100: written", "%.1f KB", func(f *figures) *float64 { return &f.bulk }},
	{"a change among 100: processor time", "%.0f µs", func(f *figures) *float64 { return &f.bulkCPU }},
	{"a change among 100: in the journal", "%.0f B", func(f *figures) *float64 { return &f.journal }},
	{"Get of an object that is not hot", "%.0f µs", func(f *figures) *float64 { return &f.get }},
	{"List of all: processor time", "%.0f ms", func(f *figures) *float64 { return &f.list }},
}

func table(out *strings.Builder, name string, plain, packed figures) {
	fmt.Fprintf(out, "\n### %s\n\n| | as they are | packed | ratio |\n|---|---:|---:|---:|\n", name)
	for _, r := range rows {
		a, b := *r.get(&plain), *r.get(&packed)
		ratio := "–"
		if a != 0 {
			ratio = fmt.Sprintf("%.2f", b/a)
		}
		fmt.Fprintf(out, "| %s | "+r.format+" | "+r.format+" | %s |\n", r.name, a, b, ratio)
	}
}

package boltstore

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// outcome is what a reader and then a program read of a file: a word and the objects.
type outcome struct{ reader, program string }

func runCorpusChild(t *testing.T, kind, dir string, from int) (outcomes []outcome, out string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCorpus$", "-test.timeout=5m")
	// A child with the race detector would otherwise stay for a second.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", corpusEnv+"="+dir,
		fmt.Sprint("KUBEWAKE_TEST_FROM=", from), "KUBEWAKE_TEST_KIND="+kind)
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
	// One case takes milliseconds. A hang shows its stack.
	// fails if it has just ended
	hang := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
	defer hang.Stop()
	reader := ""
	for sc.Scan() {
		hang.Reset(time.Minute)
		if line, ok := strings.CutPrefix(sc.Text(), "READER "); ok {
			reader = line
		} else if line, ok := strings.CutPrefix(sc.Text(), "OUTCOME "); ok {
			outcomes = append(outcomes, outcome{reader, line})
		} else if len(out) < 2000 {
			out += sc.Text() + "\n"
		}
	}
	err = cmd.Wait()
	b := stderr.String()
	return outcomes, out + b[:min(len(b), 20000)], err
}

func corpusChild(dir string) {
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
		word, objs := readAsReader(path, o)
		fmt.Println("READER " + strings.Join(append([]string{word}, objs...), "\t"))
		word, objs = readWhole(path, o)
		fmt.Println("OUTCOME " + strings.Join(append([]string{word}, objs...), "\t"))
	}
}

// readAsReader opens the file as a tool does, and reads the objects: some by key, before
// other pages are verified, then all of them, and all by an index.
func readAsReader(path string, o Options) (word string, objs []string) {
	o.ReadOnly, o.GiveWay = true, true
	db, err := Open(path, o)
	if err != nil {
		return "not opened", nil
	}
	defer db.Close()
	s, err := db.View(configMaps)
	if err != nil {
		return "no view", nil
	}
	word = "sound"
	add := func(list []any, err error) {
		if err != nil {
			word = "damaged"
		}
		for _, o := range list {
			objs = append(objs, keyAndContent(o))
		}
	}
	missing := map[string]bool{}
	for i := 0; i < 302; i += 4 {
		key := fmt.Sprintf("ns/cm%03d", i)
		o, ok, err := s.GetByKey(key)
		if missing[key] = !ok; ok {
			add([]any{o}, err)
		} else {
			add(nil, err)
		}
	}
	list, err := s.ListErr()
	add(list, err)
	for _, o := range list {
		if key, _ := cache.MetaNamespaceKeyFunc(o); missing[key] && word == "sound" {
			return "wrong", []string{key + "=listed and not found"}
		}
	}
	for _, v := range s.ListIndexFuncValues("words") {
		add(s.ByIndex("words", v))
	}
	if s.Err() != nil {
		word = "damaged"
	}
	return word, objs
}

// keyAndContent is key=content.
func keyAndContent(o any) string {
	cm := o.(*corev1.ConfigMap)
	return cm.Namespace + "/" + cm.Name + "=" + cm.ResourceVersion + cm.Data["words"] + cm.Data["k"]
}

// readWhole opens the file as a program does, and reads everything in it.
func readWhole(path string, o Options) (word string, objs []string) {
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
	bad := len(db.AsidePaths()) > 0
	list, err := s.ListErr()
	bad = bad || err != nil || s.Err() != nil
	for _, o := range list {
		objs = append(objs, keyAndContent(o))
		key, _ := cache.MetaNamespaceKeyFunc(o)
		if _, ok, err := s.GetByKey(key); !ok && err == nil && s.Err() == nil {
			objs = append(objs, key+"=listed and not found") // which is no object of any state
		}
	}
	for seq := uint64(1); err == nil; {
		var es []*Entry
		if es, err = s.Feed.ReadJournal(seq); len(es) == 0 {
			break
		}
		seq = es[len(es)-1].Seq + 1
	}
	for _, v := range s.ListIndexFuncValues("words") {
		found, err := s.ByIndex("words", v)
		bad = bad || err != nil
		for _, o := range found {
			if values, _ := indexers["words"](o); !slices.Contains(values, v) {
				return "wrong", []string{fmt.Sprintf("the index has under %q what is not: %s", v, keyAndContent(o))}
			}
			objs = append(objs, keyAndContent(o))
		}
	}
	for at := []byte(nil); ; {
		p, shownErr := s.Delivery.ServerPage(at, 100)
		bad = bad || shownErr != nil
		for _, o := range p.Objects {
			if o != nil { // otherwise it is damaged, and the source says so
				objs = append(objs, "shown "+keyAndContent(o))
			}
		}
		if at = p.Next; at == nil || shownErr != nil {
			break
		}
	}
	var notes []*note
	notesErr := s.view(func(_ *sourceMeta, src sourceTx) (err error) {
		notes, _, err = src.contents().notes.page(nil, 1<<20, s.health.meet)
		return err
	})
	for _, n := range notes {
		objs = append(objs, "refused "+n.Key+"="+n.RV)
	}
	bad = bad || err != nil || notesErr != nil || s.Err() != nil || len(db.AsidePaths()) > 0
	if err := db.h.view(func(tx *bolt.Tx) error { return verifyAll(tx, db.h.seal) }); err != nil || bad {
		return "damaged", objs
	}
	if s.metaNow().Contents != contentsWhole {
		return "empty", objs
	}
	return "sound", objs
}

package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// decisions has files and questions, and the answer to each:
//
//	file WHAT                      begins a file
//	NAME TYPE.VERSION.GROUP Kind   has this source; after it come
//	  -n NS -l SEL -f FIELDS --cluster C   what it is restricted to
//	  +N                           when it was confirmed; the higher the later
//	  cluster, unknown             its scope, namespaced otherwise; unknown also has no objects
//	  empty, unread, metadata      no objects, never listed, kept as metadata
//	  as NAME,NAME                 other names of the type
//	get ARGS -> NAMES              what the command answers
//	history ARGS -> SOURCES, and index
//	mirror ARGS -> SOURCE, SOURCE  what it mirrors; offline where no server answers
//	... -> ! TEXT                  or its error
//	... -> NAMES | TEXT            or a part of the answer, which the command says
//
// Each source has an object in the namespaces web and other, or in its own. It is named
// after source and namespace: a-web. Its labels are app=shop.
//
//go:embed testdata/decisions.txt
var decisions string

// stored is a source of a file.
type stored struct {
	name, kind string
	src        boltstore.Source
	later      int
	scope      boltstore.Scope
	names      []string
	empty      bool
	unread     bool
}

func storedAs(t *testing.T, line string) stored {
	t.Helper()
	f := strings.Fields(line)
	typ := strings.SplitN(f[1], ".", 3)
	s := stored{name: f[0], kind: f[2], scope: boltstore.ScopeNamespaced,
		src: boltstore.Source{Resource: typ[0], Version: typ[1], Group: typ[2], Form: boltstore.FormUnstructured}}
	for f = f[3:]; len(f) > 0; f = f[1:] {
		value := func() string { f = f[1:]; return f[0] }
		switch f[0] {
		case "-n":
			s.src.Namespace = value()
		case "-l":
			s.src.LabelSelector = value()
		case "-f":
			s.src.FieldSelector = value()
		case "--cluster":
			s.src.Cluster = value()
		case "as":
			s.names = strings.Split(value(), ",")
		case "cluster":
			s.scope = boltstore.ScopeCluster
		case "unknown":
			s.scope, s.empty = "", true
		case "empty":
			s.empty = true
		case "unread":
			s.unread = true
		case "metadata":
			s.src.Form = boltstore.FormMetadata
		case "pods":
			s.src.Form = boltstore.FormTyped
		default:
			n, err := strconv.Atoi(strings.TrimPrefix(f[0], "+"))
			if err != nil {
				t.Fatalf("%q in %q", f[0], line)
			}
			s.later = n
		}
	}
	return s
}

// objects are what the source lists.
func (s stored) objects() (objs []runtime.Object) {
	namespaces := []string{"web", "other"}
	switch {
	case s.empty:
		return nil
	case s.scope == boltstore.ScopeCluster:
		namespaces = []string{""}
	case s.src.Namespace != "":
		namespaces = []string{s.src.Namespace}
	}
	for _, ns := range namespaces {
		m := metav1.ObjectMeta{Namespace: ns, Name: strings.TrimSuffix(s.name+"-"+ns, "-"), ResourceVersion: "7",
			UID: "u", Labels: map[string]string{"app": "shop"}}
		switch s.src.Form {
		case boltstore.FormMetadata:
			objs = append(objs, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1",
				Kind: "PartialObjectMetadata"}, ObjectMeta: m})
			continue
		case boltstore.FormTyped:
			objs = append(objs, &corev1.Pod{ObjectMeta: m})
			continue
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: s.src.Group, Version: s.src.Version, Kind: s.kind})
		u.SetNamespace(m.Namespace)
		u.SetName(m.Name)
		u.SetResourceVersion(m.ResourceVersion)
		u.SetUID(m.UID)
		u.SetLabels(m.Labels)
		objs = append(objs, u)
	}
	return objs
}

// store writes the source into the file.
func (s stored) store(t *testing.T, db *boltstore.DB, now time.Time) {
	t.Helper()
	example := map[boltstore.Form]runtime.Object{
		boltstore.FormUnstructured: &unstructured.Unstructured{},
		boltstore.FormMetadata:     &metav1.PartialObjectMetadata{}, boltstore.FormTyped: &corev1.Pod{},
	}
	c, err := db.Claim(boltstore.Claim{Source: s.src, Example: example[s.src.Form]})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	if err := c.Describe(boltstore.Description{Scope: s.scope, Names: s.names}); err != nil {
		t.Fatal(err)
	}
	if s.unread {
		return
	}
	r, err := c.Upstream.BeginRelist(boltstore.RelistOptions{
		OnError: func(_ runtime.Object, err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Page(s.objects()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit("100", now.Add(time.Duration(s.later)*time.Second)); err != nil {
		t.Fatal(err)
	}
}

// answered returns a command's answer: the names of objects or sources, or the error.
func answered(t *testing.T, sources []stored, path, question string) (answer, said string) {
	t.Helper()
	args := append(strings.Fields(question), "--db", path)
	for i := range args {
		args[i] = strings.Trim(args[i], "'")
	}
	if args[0] == "get" {
		args = append(args, "-o", "name")
	}
	var out, errs bytes.Buffer
	code := run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &errs}, args)
	if code != 0 {
		return "!", errs.String()
	}
	var names []string
	for line := range strings.Lines(errs.String()) {
		for _, s := range sources {
			if strings.HasPrefix(line, s.src.String()+": ") {
				names = append(names, s.name)
			}
		}
	}
	slices.Sort(names)
	if args[0] != "get" {
		return strings.Join(names, " "), errs.String()
	}
	objects := strings.Fields(out.String()) // whose they are is in their names
	slices.Sort(objects)
	return strings.Join(objects, " "), errs.String()
}

// types is a server of several types that share their names.
func types(t *testing.T) (url string) {
	t.Helper()
	of := func(group, version, kind, plural string, namespaced bool, short ...string) kubesim.Resource {
		return kubesim.Resource{GroupVersionKind: schema.GroupVersionKind{Group: group, Version: version, Kind: kind},
			Plural: plural, Namespaced: namespaced, ShortNames: short}
	}
	sim := kubesim.New(kubesim.Options{InitialRV: 1000, Resources: append(kubesim.DefaultResources(),
		of("serving.knative.dev", "v1", "Service", "services", true, "ksvc"),
		of("old.example.org", "v1", "Relic", "relics", true), of("old.example.org", "v1beta1", "Relic", "relics", true),
		of("b.example.org", "v1", "Gadget", "gadgets", false),
		of("c.example.org", "v1", "Gadget", "gadgets", true, "gd"))})
	url, err := sim.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	return url
}

// mirrors returns the sources that a mirror keeps up to date.
func mirrors(t *testing.T, server, path, args string) (answer, said string) {
	t.Helper()
	t.Setenv("HOME", t.TempDir()) // kubectl's cache
	t.Setenv("KUBECONFIG", "")
	log := &buffer{}
	cmd, m := mirrorCommand(genericiooptions.IOStreams{Out: io.Discard, ErrOut: log})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append(strings.Fields(args), "--db", path, "--server", server, "--no-socket"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	for tick := time.NewTicker(time.Millisecond); ; {
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("mirror %s: it does not know its types within a minute: %s", args, log)
			}
			return "!", fmt.Sprint(err)
		case <-tick.C:
		}
		if unknown := strings.Contains(log.String(), "the server cannot be asked about this type"); unknown ||
			m.stats.known.Load() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("mirror %s: %v", args, err)
			}
			if unknown {
				return "!", log.String()
			}
			var names []string
			for _, s := range m.stats.all() {
				names = append(names, strings.TrimSuffix(s.name, " (unstructured)"))
			}
			slices.Sort(names)
			return strings.Join(names, ", "), ""
		}
	}
}

func TestDecisions(t *testing.T) {
	var file string
	var sources []stored
	path, open := "", false
	now := time.Now().Add(-time.Minute)
	note := regexp.MustCompile(`(^| )[|!] `)
	cells := 0
	servers := map[string]string{"mirror": types(t), "offline": "http://127.0.0.1:1"}
	for at, line := range strings.Split(decisions, "\n") {
		line, _, _ = strings.Cut(line, "#")
		question, want, asked := strings.Cut(strings.TrimSpace(line), "->")
		switch {
		case question == "":
		case strings.HasPrefix(question, "file "):
			file, sources, open = question, nil, false
		case !asked:
			sources = append(sources, storedAs(t, question))
		default:
			if !open {
				open, path = true, filepath.Join(t.TempDir(), fmt.Sprint(at, ".db"))
				fileOf(t, path, sources, now)
			}
			cells++
			want, text := strings.TrimSpace(want), ""
			if at := note.FindStringIndex(want); at != nil {
				mark := strings.TrimSpace(want[at[0]:at[1]])
				want, text = strings.TrimSpace(want[:at[0]]), strings.TrimSpace(want[at[1]:])
				if mark == "!" {
					want = "!"
				}
			}
			got, said := "", ""
			if cmd, args, _ := strings.Cut(question, " "); servers[cmd] == "" {
				got, said = answered(t, sources, path, question)
			} else {
				own := filepath.Join(t.TempDir(), fmt.Sprint(at, ".db")) // the next question meets the file as it was
				fileOf(t, own, sources, now)
				got, said = mirrors(t, servers[cmd], own, args)
			}
			if got != want || !strings.Contains(said, text) || text == "" && strings.Contains(said, "no source has") {
				t.Errorf("line %d, %s: %s: %q, want %q; it says %s", at+1, file, question, got, want, said)
			}
		}
	}
	t.Logf("%d cells", cells)
}

// fileOf makes a file of the sources. Status shows each with its scope and objects.
func fileOf(t *testing.T, path string, sources []stored, now time.Time) {
	t.Helper()
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources {
		s.store(t, db, now)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	status := shown(t, "status", "--db", path)
	for _, s := range sources {
		objects := len(s.objects())
		if s.unread {
			objects = 0
		}
		if !strings.Contains(status, fmt.Sprintf("%s %d ", s.src, objects)) {
			t.Errorf("%s has not %d objects in %s", s.src, objects, status)
		}
	}
}

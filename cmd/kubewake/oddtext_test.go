package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/live"
	"github.com/kubewake/kubewake/history"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/metrics"
	"github.com/kubewake/kubewake/reflector"
)

// TestHistoryKeepsTheTerminal: field names of custom resources and other text in objects
// cannot control the terminal.
func TestHistoryKeepsTheTerminal(t *testing.T) {
	const odd = "\x1b[2J\u009b2Jü\r\n\t"
	var out bytes.Buffer
	v := objectVersion{Version: history.Version{
		Key: "web/" + odd, Type: cache.Updated, ResourceVersion: odd, Managers: []string{odd},
		Diff: []history.Change{{Path: ".spec." + odd, Old: odd, New: map[string]any{odd: odd}}}}}
	if err := (&historyCmd{}).print(&out, v); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "\n") != 2 || !strings.Contains(out.String(), "ü") ||
		strings.ContainsFunc(out.String(), func(r rune) bool { return unicode.IsControl(r) && r != '\n' }) {
		t.Errorf("%q", out.String())
	}
}

// TestServersKeepTheTerminal: the reasons that a server gives, which the log and status show,
// cannot control the terminal, and add no lines.
func TestServersKeepTheTerminal(t *testing.T) {
	const odd = "denied (\x1b[2J\npods/v1: live)"
	var log, status bytes.Buffer
	(&mirror{streams: genericiooptions.IOStreams{ErrOut: &log}}).logf("%s: %s", "pods/v1", odd)
	printOwner(&status, &live.Owner{PID: 1, Sources: map[string]string{"pods/v1": odd}})
	for text, lines := range map[string]int{log.String(): 1, status.String(): 2} {
		if strings.Count(text, "\n") != lines || strings.Contains(text, "\x1b") {
			t.Errorf("%q", text)
		}
	}
}

// TestMetricsOfOddNames: text that is not UTF-8, as in a namespace from the command line,
// does not end the program.
func TestMetricsOfOddNames(t *testing.T) {
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "f.db"), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	src := boltstore.Source{Version: "v1", Resource: "pods", Namespace: "a\xff", Form: boltstore.FormTyped}
	inf, err := informer.NewSharedIndexInformer(db, &cache.ListWatch{}, &corev1.Pod{},
		informer.Options{Reflector: reflector.Options{Source: &src}})
	if err != nil {
		t.Fatal(err)
	}
	var s stats
	s.begin(db)
	s.add(&source{name: src.String(), inf: inf})
	registry := prometheus.NewRegistry()
	registry.MustRegister(&s, metrics.NewCollector(db))
	if all, err := registry.Gather(); err != nil || len(all) < 10 {
		t.Errorf("%d metrics, %v", len(all), err)
	}
}

// TestEventsKeepTheirLines: an object whose name has line breaks, as that of a role may, adds
// no line to what mirror --events prints.
func TestEventsKeepTheirLines(t *testing.T) {
	var out bytes.Buffer
	handler := handlerOfRoles(t, &mirror{streams: genericiooptions.IOStreams{Out: &out}, events: true})
	const odd = "x\nDELETED pods kube-system/etcd u 1\x1b[2J"
	handler.OnAdd(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: odd, UID: "u",
		ResourceVersion: "7"}}, false)
	handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "web/" + odd})
	if text := out.String(); strings.Count(text, "\n") != 2 || strings.Contains(text, "\x1b") ||
		!strings.HasPrefix(text, "ADDED roles.rbac.authorization.k8s.io web/x") {
		t.Errorf("%q", text)
	}
}

// TestEventsOnFullDisk: the log says once that events cannot be printed, and again after some
// could.
func TestEventsOnFullDisk(t *testing.T) {
	var log bytes.Buffer
	disk := &fullDisk{full: true}
	handler := handlerOfRoles(t, &mirror{streams: genericiooptions.IOStreams{Out: disk, ErrOut: &log}, events: true})
	for _, full := range []bool{true, true, false, true, false} {
		disk.full = full
		handler.OnAdd(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "x"}}, false)
	}
	if n := strings.Count(log.String(),
		"events are lost, since they cannot be printed: no space left on device\n"); n != 2 {
		t.Errorf("%d times: %s", n, log.String())
	}
}

// fullDisk fails while it is full.
type fullDisk struct{ full bool }

func (d *fullDisk) Write(b []byte) (int, error) {
	if d.full {
		return 0, syscall.ENOSPC
	}
	return len(b), nil
}

// handlerOfRoles is a mirror's handler of a source of roles.
func handlerOfRoles(t *testing.T, m *mirror) cache.ResourceEventHandler {
	t.Helper()
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "f.db"), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	roles := boltstore.Source{Group: rbacv1.GroupName, Version: "v1", Resource: "roles", Form: boltstore.FormTyped}
	inf, err := informer.NewSharedIndexInformer(db, &cache.ListWatch{}, &rbacv1.Role{},
		informer.Options{Reflector: reflector.Options{Source: &roles}})
	if err != nil {
		t.Fatal(err)
	}
	return m.counter(&source{inf: inf})
}

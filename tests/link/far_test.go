package link

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/tuning"
	"github.com/kubewake/kubewake/reflector"
	"github.com/kubewake/kubewake/tests/apiserver"
)

// asked counts this test's requests: lists and watches of config maps, those that read
// everything, and first pages. A list that only proves that nothing was missed asks for
// no older state than a version, and is counted separately.
func (w *world) asked(since time.Time) (lists, watches, full, first int) {
	w.Helper()
	proves := false
	w.proofs = 0
	all, err := w.s.Requests(since)
	if err != nil {
		w.Fatal(err)
	}
	for _, r := range all.UserAgent(strings.ReplaceAll(w.Name(), " ",
		"_")).Path("/api/v1/namespaces/default/configmaps") {
		if r.Verb == "list" && !strings.Contains(r.URI, "continue=") {
			proves = strings.Contains(r.URI, "resourceVersionMatch="+string(metav1.ResourceVersionMatchNotOlderThan))
		}
		switch {
		case r.Verb == "watch":
			watches++
		case r.FullRead() && proves:
			w.proofs++
		case r.FullRead():
			full++
			if !strings.Contains(r.URI, "continue=") {
				first++
			}
		default:
			lists++
		}
	}
	return lists, watches, full, first
}

// latency: a wake takes few round trips, however long these are.
func latency(w *world) {
	const way = 300 * time.Millisecond
	path := filepath.Join(w.TempDir(), "test.db")
	w.create(configMaps, "late0", "")
	for i := range 300 {
		w.create(configMaps, fmt.Sprint("other", i), "")
	}
	m := w.mirrorAt(path, configMaps, apiserver.Admin, informer.Options{})
	m.phase(reflector.PhaseLive)
	m.equal()
	// TLS, a question, and a watch that brings the missed changes, take a round trip
	// each; if others change objects, the bookmark comes two seconds later.
	w.within("a wake", 6*way, 4*time.Second, func(try int) time.Duration {
		m.end()
		w.link.drop() // the client would go on with its connection
		w.create(configMaps, fmt.Sprint("late", try+1), "")
		w.delete(configMaps, fmt.Sprint("late", try))
		w.link.delay(way)
		began := time.Now()
		m = w.mirrorAt(path, configMaps, apiserver.Admin, informer.Options{})
		m.until(time.Minute, m.inf.HasSynced, func() string { return "not synced: " + m.inf.State().String() })
		took := time.Since(began)
		m.phase(reflector.PhaseLive)
		m.equal()
		lists, watches, full, _ := w.asked(began)
		w.Logf("synced after %s, by %d questions, %d watches, %d full reads, %d pages of a proof",
			took.Round(time.Millisecond), lists, watches, full, w.proofs)
		if lists+full > 2 || full > 1 || watches > 2 || w.proofs > 2 { // a list of metadata is the question
			w.Errorf("%d questions, %d watches, %d full reads, %d pages of a proof", lists, watches, full, w.proofs)
		}
		return took
	})
	w.within("an event", way, 2*time.Second, func(try int) time.Duration {
		began := time.Now()
		rv := w.create(configMaps, fmt.Sprint("late-event", try), "")
		if err := m.inf.WaitForVersion(w.Context(), rv); err != nil {
			w.Fatal(err)
		}
		return time.Since(began)
	})
	m.equal()
}

// within fails the test if something takes less than it must, or each time takes more than
// so much longer. A busy machine may hold some of five up.
func (w *world) within(what string, least, more time.Duration, do func(try int) time.Duration) {
	w.Helper()
	var took []time.Duration
	for try := range 5 {
		took = append(took, do(try))
		if took[try] < least {
			w.Errorf("%s after %s", what, took[try])
		}
		if took[try] <= least+more {
			return
		}
	}
	w.Errorf("%s after %s", what, took)
}

// resets: connections end by RST in the middle of pages and of a watch's event.
func resets(w *world) {
	random := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('a' + rand.IntN(26))
		}
		return string(b)
	}
	for i := range 100 {
		w.create(configMaps, fmt.Sprintf("reset%03d", i), random(2000))
	}
	// Pages of 45 kB: the second one is the first to break.
	began := time.Now()
	w.link.cut(70_000, 3)
	m := w.mirror(configMaps, apiserver.Admin, informer.Options{Reflector: tuned(tuning.Reflector{PageSize: 20})})
	m.until(time.Minute, m.inf.HasSynced, func() string { return "not synced: " + m.inf.State().String() })
	m.phase(reflector.PhaseLive)
	m.equal()
	lists, watches, full, first := w.asked(began)
	w.Logf("synced after %s, by %d questions, %d watches, %d pages", time.Since(began).Round(time.Millisecond), lists,
		watches, full)
	if n := w.link.uncut(); n > 0 {
		w.Errorf("%d resets have yet to come", n)
	}
	// Each reset costs a page.
	if n := len(m.inf.GetStore().ListKeys()); first != 1 || full > (n+19)/20+3 || lists > 2 || watches > 3 {
		w.Errorf("%d objects: %d questions, %d watches, %d pages, %d of them first ones", n, lists, watches, full,
			first)
	}
	m.forget()

	began = time.Now()
	w.link.cut(50_000, 1)
	w.create(configMaps, "reset-large", random(200_000)) // it breaks in the middle
	m.expect("reset", "+reset-large")
	if n := w.link.uncut(); n > 0 {
		w.Errorf("%d resets have yet to come", n)
	}
	m.phase(reflector.PhaseLive)
	w.link.reset()
	w.create(configMaps, "reset-missed", "")
	w.delete(configMaps, "reset000")
	m.expect("reset", "+reset-missed", "-reset000")
	m.phase(reflector.PhaseLive)
	m.equal()
	lists, watches, full, _ = w.asked(began)
	w.Logf("watches: %d questions, %d watches, %d full reads in %s", lists, watches, full,
		time.Since(began).Round(time.Millisecond))
	if lists > 3 || watches > 4 || full > 0 {
		w.Errorf("%d questions, %d watches, %d full reads", lists, watches, full)
	}
}

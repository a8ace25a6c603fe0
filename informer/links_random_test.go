package informer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/sealtest"
	"github.com/kubewake/kubewake/internal/tuning"
	"github.com/kubewake/kubewake/reflector"
)

// TestLinksAtRandom: random programs over TLS, with HTTP/1.1 and HTTP/2. The link holds
// bytes back in one direction or both, loses them, is slow, late or refused, and ends in
// the middle. Answers are cut, stall, or come from a gateway that is no API server.
// Meanwhile objects change, processes end, and the server forgets old versions. Nothing
// is told as deleted that is there, nothing stale counts as synced or fresh, and in the
// end stores and handlers equal the server.
//
// $KUBEWAKE_LINKS says how many programs there are, or for how long ("2h"): different ones
// each time. $KUBEWAKE_SEED says from which seed on.
func TestLinksAtRandom(t *testing.T) {
	first, n, end := uint64(1), uint64(2), time.Time{}
	if testing.Short() {
		n = 1
	}
	many := os.Getenv("KUBEWAKE_LINKS")
	if d, err := time.ParseDuration(many); err == nil {
		first, n, end = uint64(time.Now().UnixNano()), 1<<40, time.Now().Add(d)
	} else if i, err := strconv.ParseUint(many, 10, 64); err == nil {
		n = i
	}
	if i, err := strconv.ParseUint(os.Getenv("KUBEWAKE_SEED"), 10, 64); err == nil {
		first = i
	}
	bubble(t, func(*testing.T, *world) {})
	warmTLS(t)
	for seed := first; seed < first+n && (end.IsZero() || time.Now().Before(end)); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { linksProgram(t, seed) })
		})
	}
}

// warmTLS makes things that exist once in the process.
func warmTLS(t *testing.T) {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}

// links is such a program under way.
type links struct {
	t       *testing.T
	r       *rand.Rand
	sim     *kubesim.Server
	portal  *portal
	wire    *wire
	roots   *x509.CertPool
	began   time.Time
	path    string
	sources []*linked
	changes int
	story   []string

	// of this life
	db         *boltstore.DB
	ctx        context.Context
	cancel     context.CancelFunc
	running    sync.WaitGroup
	transports []*http.Transport
}

func linksProgram(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 11))
	sim := kubesim.New(kubesim.Options{HistorySize: 100_000, NoBookmarks: r.IntN(8) == 0})
	l := &links{t: t, r: r, sim: sim, portal: &portal{sim: sim, r: rand.New(rand.NewPCG(seed, 12))}, wire: newWire(),
		roots: x509.NewCertPool(), began: time.Now(), path: filepath.Join(t.TempDir(), "links.db"),
		sources: linkedSources()}
	srv := &httptest.Server{Listener: l.wire.l,
		Config: &http.Server{Handler: l.portal, ErrorLog: log.New(io.Discard, "", 0)}, EnableHTTP2: true}
	srv.StartTLS()
	l.roots.AddCert(srv.Certificate())
	for i, s := range l.sources {
		s.sim, s.began, s.h1 = sim, l.began, (seed+uint64(i))%3 == 0
		s.there, s.durable = map[string]string{}, map[string]string{}
	}
	for range 60 {
		l.change()
	}
	l.heal()
	l.live()
	for round := range 12 {
		l.round(round)
	}
	l.die()
	l.wire.drop()
	srv.CloseClientConnections()
	_ = l.wire.l.Close() // srv closes it, too
	srv.Close()
	sim.Close()
	after(time.Minute)
	for _, s := range l.sources {
		if len(s.faults) > 0 {
			t.Errorf("%s\n%s", strings.Join(s.faults, "\n"), strings.Join(s.log[max(0, len(s.log)-60):], "\n"))
		}
	}
	if t.Failed() {
		t.Log(strings.Join(l.story, "\n"))
	}
}

func (l *links) say(a ...any) {
	l.story = append(l.story, fmt.Sprint(time.Since(l.began), " ", fmt.Sprint(a...)))
}

// change changes an object at random.
func (l *links) change() {
	l.t.Helper()
	r := l.r
	l.changes++
	m := metav1.ObjectMeta{Namespace: []string{"web", "default"}[r.IntN(2)], Name: fmt.Sprint("o", r.IntN(30)),
		Labels: map[string]string{"app": []string{"a", "b"}[r.IntN(2)]}}
	data := fmt.Sprint(l.changes, strings.Repeat("x", r.IntN(1+r.IntN(3000))))
	var o kubesim.Object
	switch r.IntN(3) {
	case 0:
		o = &corev1.ConfigMap{ObjectMeta: m, Data: map[string]string{"n": data}}
	case 1:
		o = &corev1.Secret{ObjectMeta: m, StringData: map[string]string{"n": data}}
	case 2:
		w := linkedWidget(m.Namespace, m.Name, data)
		w.SetLabels(m.Labels)
		o = w
	}
	if r.IntN(3) == 0 {
		_ = l.sim.Delete(o) // it need not be there
		return
	}
	if l.sim.Update(o) != nil {
		if err := l.sim.Create(o); err != nil {
			l.t.Fatal(err)
		}
	}
}

// config is that of a client behind the link.
func (l *links) config(h1 bool) *rest.Config {
	tr := &http.Transport{DialContext: l.wire.dial,
		TLSClientConfig:     &tls.Config{RootCAs: l.roots, ServerName: "example.com"},
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second}
	if h1 {
		tr.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	} else {
		tr = utilnet.SetTransportDefaults(tr) // with pings
	}
	l.transports = append(l.transports, tr)
	return reflector.WrapConfig(&rest.Config{Host: "https://example.com", QPS: -1, Transport: tr})
}

// live begins a life of the process.
func (l *links) live() {
	l.t.Helper()
	var err error
	if l.db, err = boltstore.Open(l.path,
		boltstore.Options{Keyset: sealtest.Default(), Durability: boltstore.DurabilityProcess}); err != nil {
		l.t.Fatal(err)
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	cfgs := map[bool]*rest.Config{false: l.config(false), true: l.config(true)}
	for _, s := range l.sources {
		o := tuned(tuning.Reflector{PageSize: []int64{0, 3, 10, 20}[l.r.IntN(4)], Metadata: l.r.IntN(2) == 0})
		o.Confirm = []reflector.Confirm{reflector.ConfirmAuto, reflector.ConfirmBookmark,
			reflector.ConfirmList}[l.r.IntN(3)]
		if err := s.make(l.db, s.lw(cfgs[s.h1]), o); err != nil {
			l.t.Fatal(s.name, err)
		}
		had, rv := s.state()
		inf, pauses := s.inf, rand.New(rand.NewPCG(l.r.Uint64(), 1))
		ctx := l.ctx
		l.running.Go(func() { inf.RunWithContext(ctx) })
		if s.standalone {
			continue // it says what is in the file
		}
		l.running.Go(func() {
			select {
			case <-inf.HasSyncedChecker().Done():
				if d := s.behind(had, rv); d != "" {
					s.fault("synced, but %s", d)
				}
			case <-ctx.Done():
			}
		})
		l.running.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Duration(pauses.IntN(120)) * time.Second):
				}
				s.wantFresh(ctx, time.Duration(1+pauses.IntN(200))*time.Second)
			}
		})
	}
}

func (l *links) die() {
	l.t.Helper()
	l.cancel()
	l.running.Wait()
	if err := l.db.Close(); err != nil {
		l.t.Error(err)
	}
	for _, tr := range l.transports {
		tr.CloseIdleConnections()
	}
	l.transports = nil
}

func (l *links) heal() {
	l.wire.set(func(w *wire) { w.held, w.lost, w.cut, w.rate, w.refuse, w.late = [2]bool{}, [2]bool{}, 0, 0, false, 0 })
	l.portal.spoil(0, nil)
}

// disturb adds a fault.
func (l *links) disturb() (what string) {
	r := l.r
	kind, dir := r.IntN(10), r.IntN(2)
	if kind >= 7 {
		var kinds []string
		for range 1 + r.IntN(4) {
			kinds = append(kinds, spoilt[r.IntN(len(spoilt))])
		}
		percent := []int{5, 30, 100}[r.IntN(3)]
		l.portal.spoil(percent, kinds)
		if r.IntN(2) == 0 {
			l.wire.drop()
		}
		return fmt.Sprint(percent, "% of ", kinds)
	}
	l.wire.set(func(w *wire) {
		switch kind {
		case 0:
			w.held[dir] = true
			what = fmt.Sprint("held in direction ", dir)
		case 1:
			w.held = [2]bool{true, true}
			what = "held"
		case 2:
			w.lost[dir] = true
			what = fmt.Sprint("lost in direction ", dir)
		case 3:
			w.cut = 1 + r.IntN(20_000)
			what = fmt.Sprint("cut after ", w.cut)
		case 4:
			w.rate = 500 + r.IntN(5000)
			what = fmt.Sprint(w.rate, " bytes a second")
		case 5:
			w.refuse = true
			what = "refused"
		case 6:
			w.late = time.Duration(r.IntN(3000)) * time.Millisecond
			what = fmt.Sprint("late by ", w.late)
		}
	})
	if kind == 5 {
		l.wire.drop()
	}
	return what
}

// round is a time of faults and the time after it.
func (l *links) round(n int) {
	r := l.r
	l.say("round ", n)
	for range 1 + r.IntN(2) {
		l.say(l.disturb())
	}
	if r.IntN(3) == 0 {
		l.sim.Compact()
		l.wire.drop()
		l.say("compacted")
	}
	if r.IntN(4) == 0 {
		l.die()
		for range r.IntN(20) {
			l.change()
		}
		l.live()
		l.say("another life")
	}
	for range 1 + r.IntN(30) {
		after(time.Duration(r.IntN(20_000)) * time.Millisecond)
		l.change()
		if r.IntN(20) == 0 {
			l.sim.Compact()
		}
	}
	l.heal()
	l.say("healed")
	healed := time.Now()
	for _, s := range l.sources {
		for {
			d, st := s.equal(), s.inf.State()
			if d == "" && s.inf.HasSynced() &&
				(st.Phase == reflector.PhaseLive || st.Phase == reflector.PhaseCatchingUp) {
				break
			}
			if time.Since(healed) > 25*time.Minute {
				s.fault("still %s; synced %v, %s, %v", d, s.inf.HasSynced(), st, st.Relists)
				break
			}
			after(time.Second)
		}
	}
}

package informer

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/reflector"
)

// byData indexes config maps by what is in them, and a name of the version of
// the function.
func byData(version string) cache.Indexers {
	return cache.Indexers{"data": func(o any) ([]string, error) {
		if cm, ok := o.(*corev1.ConfigMap); ok {
			return []string{version + cm.Data["data"]}, nil
		}
		return nil, nil
	}}
}

// TestOptionsArrive: each option that is for the file or the source gets there.
// Each is shown by what it changes, beside an informer without it.
func TestOptionsArrive(t *testing.T) {
	same := func(o any) (any, error) { return o, nil }
	indexed := func(l *life) string {
		l.run().synced()
		return fmt.Sprint(l.inf.GetIndexer().ListIndexFuncValues("data"))
	}
	served := func(l *life) string {
		if err := l.sim.RefuseConnections(true); err != nil {
			l.t.Fatal(err)
		}
		l.run()
		after(time.Minute)
		return fmt.Sprint(len(l.inf.GetStore().ListKeys()), l.inf.State().Phase)
	}
	for name, tc := range map[string]struct {
		first, with, without Options
		shows                func(l *life) string
		wants, else_         string
	}{
		"AuditEvery": {
			with: Options{AuditEvery: time.Hour},
			shows: func(l *life) string {
				l.run().synced()
				after(61 * time.Minute)
				return fmt.Sprint(l.inf.State().Relists[reflector.ReasonAudit])
			},
			wants: "1", else_: "0",
		},
		"OnDenied": {
			with: Options{OnDenied: reflector.DeniedPurge},
			shows: func(l *life) string {
				on := &atomic.Bool{}
				l.sim.FailNext(func(r *http.Request) bool { return on.Load() && strings.HasSuffix(r.URL.Path, "/configmaps") }, 1<<30,
					kubesim.Answer(apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("no"))))
				l.run().synced()
				on.Store(true)
				l.sim.DropConnections()
				after(5 * time.Minute)
				return fmt.Sprint(len(l.inf.GetStore().ListKeys()), l.inf.State().Phase)
			},
			wants: "0denied", else_: "1denied",
		},
		"QuietTimeout": {
			with: Options{QuietTimeout: 20 * time.Second},
			shows: func(l *life) string {
				l.run().synced()
				after(time.Second)
				l.sim.Mute()
				l.create("missed")
				after(30 * time.Second)
				return fmt.Sprint(len(l.inf.GetStore().ListKeys()))
			},
			wants: "2", else_: "1",
		},
		"ServeOutdated": {
			first:   Options{Transform: same, TransformVersion: "1"},
			with:    Options{Transform: same, TransformVersion: "2", ServeOutdated: true},
			without: Options{Transform: same, TransformVersion: "2"},
			shows:   served,
			wants:   "1offline", else_: "0offline",
		},
		"IndexVersions": {
			first:   Options{Indexers: byData("old "), IndexVersions: map[string]string{"data": "1"}},
			with:    Options{Indexers: byData("new "), IndexVersions: map[string]string{"data": "2"}},
			without: Options{Indexers: byData("new "), IndexVersions: map[string]string{"data": "1"}},
			shows:   indexed,
			wants:   "[new x]", else_: "[old x]",
		},
		"Cluster": {
			with:  Options{Cluster: "edge"},
			shows: served,
			wants: "0offline", else_: "1offline", // it is another source
		},
	} {
		t.Run(name, func(t *testing.T) {
			for want, o := range map[string]Options{tc.wants: tc.with, tc.else_: tc.without} {
				bubble(t, func(t *testing.T, w *world) {
					w.create("a", "x")
					w.live(tc.first).run().synced().end()
					if got := tc.shows(w.live(o)); got != want {
						t.Errorf("%+v: %s, want %s", o, got, want)
					}
				})
			}
		})
	}
}

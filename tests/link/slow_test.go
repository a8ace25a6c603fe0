package link

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/tuning"
	"github.com/kubewake/kubewake/reflector"
	"github.com/kubewake/kubewake/tests/apiserver"
)

func slow(w *world) {
	for i := range 300 {
		w.create(configMaps, fmt.Sprintf("slow%03d", i), strings.Repeat(fmt.Sprint(i), 300))
	}
	w.link.limit(20_000)
	m := w.mirror(configMaps, apiserver.Admin, informer.Options{Reflector: tuned(tuning.Reflector{PageSize: 40})})
	ctx, cancel := context.WithCancel(w.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
			if i%3 == 0 {
				w.create(configMaps, fmt.Sprintf("slow-%03d", i), "new")
			} else {
				w.delete(configMaps, fmt.Sprintf("slow%03d", i))
			}
			if err := w.s.Compact(w.Context()); err != nil {
				w.Error(err)
			}
			if i == 4 {
				w.link.drop()
			}
		}
	})
	began := time.Now()
	m.until(3*time.Minute, m.inf.HasSynced, func() string { return "not synced: " + m.inf.State().String() })
	w.Logf("synced after %s: %v", time.Since(began).Round(time.Second), m.inf.State().Relists)
	cancel()
	wg.Wait()
	w.link.limit(0)
	m.equal()
	if n := m.inf.State().Relists[reflector.ReasonExpired]; n > 0 {
		w.Errorf("read again %d times", n)
	}
}

func fresh(w *world) {
	m := w.mirror(configMaps, apiserver.Admin, informer.Options{})
	m.phase(reflector.PhaseLive)
	rv := w.create(configMaps, "fresh", "")
	if err := m.inf.WaitForVersion(w.Context(), rv); err != nil {
		w.Fatal(err)
	}
	if _, ok, err := m.inf.GetStore().GetByKey("default/fresh"); !ok || err != nil {
		w.Error("a write cannot be read", err)
	}
	began := time.Now()
	if err := m.inf.WaitForFresh(w.Context(), 0); err != nil {
		w.Fatal(err)
	}
	if age, ok := m.inf.State().Age(time.Now()); !ok || age > time.Since(began)+time.Second {
		w.Errorf("age %s", age)
	}
	w.Logf("confirmed after %s", time.Since(began).Round(time.Millisecond))
}

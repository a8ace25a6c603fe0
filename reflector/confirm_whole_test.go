package reflector

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestWholeListConfirms: clients whose config WrapConfig has not seen list whole objects,
// in pages, and only if ConfirmList asks for that.
func TestWholeListConfirms(t *testing.T) {
	for _, confirm := range []Confirm{ConfirmAuto, ConfirmList} {
		t.Run(map[Confirm]string{ConfirmAuto: "auto", ConfirmList: "list"}[confirm], func(t *testing.T) {
			bubble(t, 2*firstPage+1, kubesim.Options{}, Options{Confirm: confirm}, func(f *fixture) {
				f.asleep()
				cfg := f.sim.RESTConfig()
				cfg.QPS = -1
				lw := cache.NewListWatchFromClient(kubernetes.NewForConfigOrDie(cfg).CoreV1().RESTClient(),
					"configmaps", "", fields.Everything())
				f.Reflector = New(lw, f.queue, f.store, f.example, "", f.o)
				f.forget()
				f.reflect()
				after(500 * time.Millisecond)
				if f.queue.HasSynced() != (confirm == ConfirmList) {
					t.Errorf("synced %v", f.queue.HasSynced())
				}
				if confirm == ConfirmList {
					reads := 0
					for _, r := range f.sim.Requests() {
						if r.FullRead() {
							reads++
						}
					}
					if reads != 3 {
						t.Errorf("%d pages", reads)
					}
				}
				after(3 * time.Second)
				if st := f.State(); !f.queue.HasSynced() || st.Phase != PhaseLive || len(st.Relists) > 0 {
					t.Errorf("synced %v, %s", f.queue.HasSynced(), st)
				}
				if diff := f.differs(); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestWholeListDiffers: a whole list that differs from the file confirms nothing.
func TestWholeListDiffers(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{Confirm: ConfirmList}, func(f *fixture) {
		f.list()
		f.put("cm1", 10, 1)
		f.asleep2()
		cfg := f.sim.RESTConfig()
		cfg.QPS = -1
		lw := cache.NewListWatchFromClient(kubernetes.NewForConfigOrDie(cfg).CoreV1().RESTClient(), "configmaps", "",
			fields.Everything())
		f.Reflector = New(lw, f.queue, f.store, f.example, "", f.o)
		f.reflect()
		after(500 * time.Millisecond)
		if diff := f.differs(); f.queue.HasSynced() && diff != "" {
			t.Error(diff)
		}
		after(time.Minute)
		if diff := f.differs(); !f.queue.HasSynced() || diff != "" {
			t.Errorf("synced %v, %s", f.queue.HasSynced(), diff)
		}
	})
}

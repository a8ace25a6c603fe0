package reflector

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestRestoredNotedLater: the disk is full when a restored server is noticed, but no
// longer when the process ends, before a list has succeeded. The next life knows it.
func TestRestoredNotedLater(t *testing.T) {
	bubble(t, 9, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
		then := f.sim.Revision()
		f.put("cm0", 10, 1) // is lost, and no number of objects shows that
		end := f.live()
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced")
		}
		after(time.Minute)
		var refused atomic.Bool
		refused.Store(true)
		f.sim.FailNext(func(r *http.Request) bool { return refused.Load() && r.URL.Query().Get("limit") == "3" }, 1<<30,
			kubesim.Answer(apierrors.NewInternalError(errors.New("starting"))))
		full := noWrites(f)
		if err := f.sim.Rewind(then); err != nil {
			t.Fatal(err)
		}
		if !until(func() bool { return f.link.is(linkRestored) }) {
			t.Fatal("nobody has noticed")
		}
		full()
		after(time.Hour)
		f.die(end)
		for range 5 {
			f.other()
		}
		refused.Store(false)
		f.reflect()
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced")
		}
		after(time.Minute)
		if d := f.differs(); d != "" {
			t.Errorf("%s: %s", d, f.State())
		}
	})
}

// noWrites makes all writes to the fixture's file fail, as on a full disk, until the
// returned function is called. The limit RLIMIT_FSIZE would fail those of package
// testing, too.
func noWrites(f *fixture) (over func()) {
	f.t.Helper()
	ok := func(err error) {
		f.t.Helper()
		if err != nil {
			f.t.Fatal(err)
		}
	}
	path := f.db.Path()
	all, err := filepath.Glob("/proc/self/fd/*")
	ok(err)
	fd := -1
	for _, link := range all {
		if to, err := os.Readlink(link); err == nil && to == path {
			fd, err = strconv.Atoi(filepath.Base(link))
			ok(err)
		}
	}
	was, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	ok(err)
	readOnly, err := os.Open(path)
	ok(err)
	ok(unix.Dup3(int(readOnly.Fd()), fd, unix.O_CLOEXEC))
	ok(readOnly.Close())
	over = sync.OnceFunc(func() {
		ok(unix.Dup3(was, fd, unix.O_CLOEXEC))
		ok(unix.Close(was))
	})
	f.t.Cleanup(over)
	return over
}

// TestVoidPagesOnAFullDisk: the disk is full when a restore has made the pages of a first
// list void, and they cannot be removed. They are not taken up, although the server has
// overtaken them, whether there is room by then or in the next life only.
func TestVoidPagesOnAFullDisk(t *testing.T) {
	for _, another := range []bool{false, true} {
		t.Run(fmt.Sprint("another life ", another), func(t *testing.T) {
			bubble(t, 9, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
				then := f.sim.Revision()
				f.put("cm0", 10, 1)                   // is lost, and no number of objects shows that
				var phase, pages, firsts atomic.Int32 // 0: two pages, then nothing; 1: further pages only; 2: all
				f.sim.FailNext(func(r *http.Request) bool {
					if !strings.Contains(r.URL.Path, "configmaps") {
						return false
					}
					page := r.URL.Query().Get("limit") == "3"
					switch phase.Load() {
					case 0:
						return page && pages.Add(1) > 2
					case 1:
						first := page && r.URL.Query().Get("continue") == ""
						if first {
							firsts.Add(1)
						}
						return first
					}
					return false
				}, 1<<30, kubesim.Answer(apierrors.NewInternalError(errors.New("starting"))))
				end := f.live()
				after(30 * time.Second)
				full := noWrites(f)
				if err := f.sim.Rewind(then); err != nil {
					t.Fatal(err)
				}
				phase.Store(1)
				if !until(func() bool { return f.link.is(linkRestored) }) {
					t.Fatalf("nobody has noticed: %s", f.State())
				}
				full()
				if another {
					until(func() bool { return firsts.Load() > 3 })
					f.die(end)
				}
				for i := range 5 {
					f.create(fmt.Sprint("other", i))
				}
				phase.Store(2)
				if another {
					end = f.live()
				}
				f.t.Cleanup(end)
				if !until(f.queue.HasSynced) {
					t.Fatal("not synced")
				}
				after(time.Hour)
				if d := f.differs(); d != "" {
					t.Errorf("%s: %s %v", d, f.State(), f.store.ListKeys())
				}
			})
		})
	}
}

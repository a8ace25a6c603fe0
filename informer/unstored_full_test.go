package informer

import (
	"errors"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/tuning"
)

// TestUnstoredOnAFullDisk: while the disk has no room for the note of an object that could
// not be stored, the server is not asked in a loop. Once there is room, and the transform
// succeeds, the object is read again.
func TestUnstoredOnAFullDisk(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var full atomic.Bool
		var asked atomic.Int64
		tuning.SetFile(&w.options, tuning.File{Op: func(op, _ string) error {
			if op == "transaction" && full.Load() {
				return syscall.ENOSPC
			}
			return nil
		}})
		w.sim.OnRequest = func(*http.Request) {
			if full.Load() && asked.Add(1) > 1000 {
				panic(http.ErrAbortHandler) // or no time would pass
			}
		}
		w.create("a")
		l := w.live(Options{TransformVersion: "1", Transform: func(obj any) (any, error) {
			if full.Load() {
				return nil, errors.New("not now")
			}
			return obj, nil
		}}, newRecorder(t)).run().synced()
		after(time.Minute)
		full.Store(true)
		w.update("a", "b")
		after(time.Hour)
		full.Store(false)
		if n := asked.Load(); n > 100 {
			t.Errorf("%d requests in an hour", n)
		}
		after(time.Hour)
		l.equal().end()
	})
}

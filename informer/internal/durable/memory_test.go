package durable

import (
	"sync/atomic"
	"testing"

	"github.com/kubewake/kubewake/boltstore"
)

// TestHandlersShareMemory: the memory of an informer's durable handlers does not grow
// with their number. Each may always take something in.
func TestHandlersShareMemory(t *testing.T) {
	o := Options{MaxPending: 1000, PendingBytes: 900}
	var n atomic.Int32
	m := memory{sharing: &n}
	for _, c := range []struct{ handlers, bytes int }{{0, 900}, {1, 900}, {3, 300}, {5000, 1}} {
		n.Store(int32(c.handlers))
		m.bytes = 0
		if m.full(&o) {
			t.Errorf("one of %d handlers can take nothing in", c.handlers)
		}
		if m.bytes = c.bytes - 1; m.bytes > 0 && m.full(&o) {
			t.Errorf("one of %d handlers is full at %d bytes", c.handlers, m.bytes)
		}
		if m.bytes = c.bytes; !m.full(&o) || m.roomy(&o) {
			t.Errorf("one of %d handlers has room at %d bytes", c.handlers, m.bytes)
		}
	}
	m = memory{}
	if m.hold(&task{entry: &boltstore.Entry{}}, 1); m.held != 1 || m.full(&o) {
		t.Errorf("%+v", m)
	}
}

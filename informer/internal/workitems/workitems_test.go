package workitems

import (
	"fmt"
	"testing"
)

// TestItems: an event is acknowledged once the items of all events of its key are done.
func TestItems(t *testing.T) {
	acked := ""
	w := New[string, string]()
	told := func(key string, seq uint64, once bool, items ...string) (done bool) {
		e := w.Begin(key, once, func() { acked += fmt.Sprint(key, seq, " ") })
		for _, item := range items {
			w.Expect(e, item)
		}
		return w.Close(e)
	}
	work := func(item string, done bool) {
		w.Take(item)
		w.End(item, done)
	}
	expect := func(want string, left int) {
		t.Helper()
		if acked != want || w.Len() != left {
			t.Errorf("acknowledged %q, %d events wait; want %q, %d", acked, w.Len(), want, left)
		}
		acked = ""
	}
	if !told("a", 1, false) {
		t.Error("it leads to nothing, and is not done")
	}
	expect("", 0)

	told("a", 2, false, "x", "y", "x")
	told("a", 3, false, "z")
	work("x", true)
	work("z", true)
	expect("", 1) // y is of an earlier event of the key
	work("y", true)
	expect("a3 ", 0)

	told("a", 4, false, "x")
	work("x", false)
	told("a", 4, false, "x") // told again
	expect("", 1)
	work("x", false)
	told("a", 5, false, "y") // its acknowledgement will cover the one before
	expect("", 1)
	work("y", true)
	expect("", 1)
	work("x", true)
	expect("a5 ", 0)

	w.Take("x")
	told("b", 6, false, "x") // while it is being worked on
	w.End("x", true)
	expect("", 1)
	work("x", true)
	expect("b6 ", 0)

	told("", 0, true, "x")
	work("x", false)
	expect("0 ", 0)

	e := w.Begin("c", false, func() { t.Error("it is done when it is closed") })
	w.Expect(e, "x")
	work("x", true)
	if !w.Close(e) {
		t.Error("it is done, and Close does not say so")
	}
	expect("", 0)
}

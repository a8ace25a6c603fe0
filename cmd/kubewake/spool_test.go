package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// standing takes nothing before it is told to.
type standing struct {
	bytes.Buffer
	goOn chan struct{}
	err  error
}

func (w *standing) Write(b []byte) (int, error) {
	<-w.goOn
	if w.err != nil {
		return 0, w.err
	}
	return w.Buffer.Write(b)
}

// TestSpool: the writer does not wait for the reader, which gets everything in order. A
// reader that has stopped reading ends the spool, and this is reported once.
func TestSpool(t *testing.T) {
	pager := &standing{goOn: make(chan struct{})}
	s := newSpool(pager)
	want := ""
	for _, text := range []string{"one ", "two ", strings.Repeat("much ", 1_000_000)} {
		if _, err := s.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		want += text
	}
	close(pager.goOn)
	if err := s.Close(); err != nil || pager.String() != want {
		t.Errorf("%v, %d bytes, not %d", err, pager.Len(), len(want))
	}

	// If memory is full, the writer waits.
	pager = &standing{goOn: make(chan struct{})}
	s = newSpool(pager)
	wrote := make(chan error)
	go func() {
		part := make([]byte, spoolBytes)
		for range 3 { // one is passed on, one is held
			_, err := s.Write(part)
			wrote <- err
		}
	}()
	for range 2 {
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
	}
	close(pager.goOn)
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil || pager.Len() != 3*spoolBytes {
		t.Errorf("%v, %d bytes", err, pager.Len())
	}

	full := errors.New("full")
	for _, writes := range []int{1, 2} {
		pager = &standing{goOn: make(chan struct{}), err: full}
		s = newSpool(pager)
		close(pager.goOn)
		_, err := s.Write([]byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		if writes == 2 {
			<-s.done
			if _, err := s.Write([]byte("x")); !errors.Is(err, full) {
				t.Error(err)
			}
		}
		if err := s.Close(); errors.Is(err, full) != (writes == 1) {
			t.Errorf("after %d writes: %v", writes, err)
		}
	}
}

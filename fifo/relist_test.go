package fifo

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/kubewake/kubewake/boltstore"
)

// TestRelistEndsWithTheQueue: a relist that the disk does not take ends when
// the queue does.
func TestRelistEndsWithTheQueue(t *testing.T) {
	failing := make(chan struct{}, 1)
	log := funcr.New(func(_, args string) {
		if strings.Contains(args, "A relist could not be committed") {
			select {
			case failing <- struct{}{}:
			default:
			}
		}
	}, funcr.Options{})
	q, _ := newQueue(t, boltstore.Options{MaxSize: 128 << 10}, Options{Logger: &log})
	if err := q.Replace([]any{object("x", 1)}, "1"); err != nil {
		t.Fatal(err)
	}
	var objs []any
	for i := range 100 {
		o := object(fmt.Sprint("o", i), i+1)
		o.Data = map[string]string{"k": string(make([]byte, 5000))}
		objs = append(objs, o)
	}
	done := make(chan error, 1)
	go func() { done <- q.Replace(objs, "200") }()
	select {
	case err := <-done:
		t.Fatalf("it ended: %v", err)
	case <-failing:
	}
	q.Close()
	select {
	case err := <-done:
		if !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
}

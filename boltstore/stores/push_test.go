package stores_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	framework "k8s.io/client-go/tools/cache/testing"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/codec"
	"github.com/kubewake/kubewake/boltstore/stores"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/informertest"
)

// pushed runs Push. Each state comes by the channel, and push waits there.
type pushed struct {
	t      *testing.T
	states chan string
	ended  chan error
	stop   context.CancelCauseFunc
}

func startPush(t *testing.T, s *boltstore.Store, show func([]any) string) *pushed {
	ctx, stop := context.WithCancelCause(context.Background())
	p := &pushed{t, make(chan string), make(chan error, 1), stop}
	go func() {
		p.ended <- stores.Push(ctx, s, func(objs []any) {
			select {
			case p.states <- show(objs):
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() { stop(nil) })
	return p
}

func (p *pushed) is(want string) {
	p.t.Helper()
	select {
	case got := <-p.states:
		if got != want {
			p.t.Fatalf("pushed %s, want %s", got, want)
		}
	case err := <-p.ended:
		p.t.Fatalf("ended, want %s: %v", want, err)
	case <-time.After(time.Minute):
		p.t.Fatalf("nothing is pushed, want %s", want)
	}
}

func (p *pushed) end(is error) {
	p.t.Helper()
	select {
	case got := <-p.states:
		p.t.Fatalf("pushed %s, want the end", got)
	case err := <-p.ended:
		if !errors.Is(err, is) {
			p.t.Fatal(err)
		}
	case <-time.After(time.Minute):
		p.t.Fatal("Push does not end")
	}
}

// TestPush: nothing waits for a call of push, and all commits during the call lead to one
// more call.
func TestPush(t *testing.T) {
	for _, memory := range []int64{-1, 1 << 20} {
		s := claim(t, open(t, newPath(t), boltstore.Options{ObjectMemory: memory}))
		p := startPush(t, s.Store, text)
		add := func(name, value string) { t.Helper(); must(0, s.Add(&token{name, value}))(t) }
		add("a", "1")
		p.is("[a=1]")
		must(0, s.Replace([]any{&token{"b", "49"}, &token{"c", "1"}}, "5"))(t)
		p.is("[b=49 c=1]")
		s.Bookmark("9") // tells nothing new
		must(0, s.Delete(&token{Name: "c"}))(t)
		p.is("[b=49]")
		must(0, s.Replace(nil, "10"))(t)
		p.is("[]")
		p.stop(errCause)
		p.end(errCause)
	}
}

var errCause = errors.New("the program ends")

// TestPushOnce: a push that takes long is followed by one call for everything committed
// meanwhile.
func TestPushOnce(t *testing.T) {
	s := claim(t, open(t, newPath(t), boltstore.Options{}))
	began, goOn := make(chan struct{}), make(chan struct{})
	var states []string
	ended := make(chan error)
	go func() {
		ended <- stores.Push(context.Background(), s.Store, func(objs []any) {
			states = append(states, text(objs))
			if len(states) == 1 {
				close(began)
				<-goOn
			}
		})
	}()
	must(0, s.Add(&token{"a", "first"}))(t)
	<-began
	for i := range 50 {
		must(0, s.Add(&token{"a", fmt.Sprint(i)}))(t) // it does not wait for push
	}
	s.Release()
	close(goOn)
	if err := <-ended; !errors.Is(err, boltstore.ErrClosed) || fmt.Sprint(states) != "[[a=first] [a=49]]" {
		t.Fatal(err, states)
	}
}

// TestPushOfAnInformer: an informer's state is pushed when it is whole: after the first
// list, after each change, and at once in the next life. Push ends with the informer.
func TestPushOfAnInformer(t *testing.T) {
	names := func(objs []any) string {
		var all []string
		for _, o := range objs {
			all = append(all, o.(*corev1.Pod).Name)
		}
		return fmt.Sprint(sorted(all))
	}
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name}}
	}
	server := framework.NewFakeControllerSource()
	server.Add(pod("a"))
	server.Add(pod("b"))
	db := informertest.Open(t)
	for life := range 2 {
		inf, err := informer.NewSharedIndexInformer(db, informertest.ListerWatcher(server, &corev1.Pod{}),
			&corev1.Pod{}, informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if life == 0 {
			must(0, inf.GetStore().Add(pod("own")))(t)
		}
		p := startPush(t, inf.Store(), names)
		if life == 1 {
			p.is("[b c]")
			server.Add(pod("d"))
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { inf.RunWithContext(ctx); close(done) }()
		if life == 0 {
			p.is("[a b]")
			server.Add(pod("c"))
			p.is("[a b c]")
			server.Delete(pod("a"))
			p.is("[b c]")
		} else {
			p.is("[b c d]")
		}
		stop()
		<-done
		p.end(boltstore.ErrClosed)
	}
	view, err := db.View(boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormTyped})
	if err != nil {
		t.Fatal(err)
	}
	p := startPush(t, view, names)
	p.is("[b c d]")
	if err := <-p.ended; err == nil || errors.Is(err, boltstore.ErrClosed) {
		t.Error(err)
	}
}

// TestPushEndsWithTheFile: Push ends when the file is closed under an informer.
func TestPushEndsWithTheFile(t *testing.T) {
	db := open(t, newPath(t), boltstore.Options{})
	s := claim(t, db)
	s.Feed.ExpectProducer()
	p := startPush(t, s.Store, text)
	must(0, db.Close())(t)
	p.end(boltstore.ErrClosed)
	p = startPush(t, s.Store, text)
	p.end(boltstore.ErrClosed)
}

// meddling is a codec that calls a function at each Decode.
type meddling struct {
	codec.Codec
	during atomic.Pointer[func()]
}

func (m *meddling) Decode(data []byte) (runtime.Object, error) {
	if f := m.during.Load(); f != nil {
		(*f)()
	}
	return m.Codec.Decode(data)
}

// TestPushMissesNoCommit: a commit that comes while the list is read is pushed next.
func TestPushMissesNoCommit(t *testing.T) {
	path := newPath(t)
	db := open(t, path, boltstore.Options{})
	must(0, claim(t, db).Add(&token{"a", "1"}))(t)
	closeDB(t, db)
	typed, err := codec.For(&token{})
	if err != nil {
		t.Fatal(err)
	}
	m := &meddling{Codec: typed}
	s, err := open(t, path, boltstore.Options{ObjectMemory: -1}).Claim(boltstore.Claim{Source: tokens,
		Example: &token{}, KeyFunc: tokenKey, Codec: m})
	if err != nil {
		t.Fatal(err)
	}
	once := func() {
		m.during.Store(nil)
		if err := s.Add(&token{"b", "2"}); err != nil {
			t.Error(err)
		}
	}
	m.during.Store(&once)
	p := startPush(t, s.Store, text)
	p.is("[a=1]")
	p.is("[a=1 b=2]")
}

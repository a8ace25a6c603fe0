package apifile

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"weak"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/index"
	"github.com/kubewake/kubewake/internal/kubeapi"
)

// pageSize bounds the objects that are read at a time; the Store bounds their bytes.
const pageSize = 1000

// patience is how long a read waits for the file to reach its version, as at a server.
const patience = 3 * time.Second

// errNoPages is for a continue token, which no list of a file has given.
var errNoPages = apierrors.NewResourceExpired("a list of a file has no pages; start it without the continue parameter")

// List implements kubeapi.Storage. It does not apply the limit: a server that holds all
// objects in memory answers a list at version 0 in the same way.
func (s *storage) List(ctx context.Context, t *kubeapi.Type, q kubeapi.Query) (*kubeapi.Page, error) {
	src, err := s.pick(t, q.Selection)
	switch {
	case err != nil:
		return nil, err
	case q.From != "":
		return nil, errNoPages
	}
	s.freshen(ctx, src)
	at, err := s.reach(ctx, src, max(q.Least, q.At))
	if err == nil && q.At > 0 {
		version := strconv.FormatUint(q.At, 10)
		at, _, err = src.Moment(version)
		at.Version = version
	}
	if err != nil {
		return nil, answer(err)
	}
	src.few = !s.part.Take(oneRead)
	return &kubeapi.Page{Version: number(at.Version), Each: src.walk(ctx, at, q)}, nil
}

// reach waits until the source has a version, and returns the newest moment. A version of
// other types' changes does not come by itself: then the server is asked.
func (s *storage) reach(ctx context.Context, src *source, version uint64) (boltstore.Moment, error) {
	ctx, cancel := context.WithCancel(ctx)
	asked := make(chan error, 1)
	reached := false
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	var timer <-chan time.Time
	for {
		changed := s.db.Committed(src.st.Source)
		at, _, err := src.Moment("")
		if err != nil || number(at.Version) >= version {
			return at, err
		}
		text := strconv.FormatUint(version, 10)
		if reached {
			at.Version = text
			return at, nil
		}
		if timer == nil {
			t := s.opts.Clock.NewTimer(patience)
			defer t.Stop()
			timer = t.C()
			asking.Go(func() { asked <- src.WaitForVersion(ctx, text) })
		}
		select {
		case <-changed:
		case err := <-asked:
			reached = err == nil
		case <-timer:
			return at, &kubeapi.TooLargeError{Version: version, Current: number(at.Version)}
		case <-ctx.Done():
			return at, ctx.Err()
		}
	}
}

// oneRead is about how many bytes of the file are read at a time, and few how many objects
// if there is no room.
const (
	oneRead = 1 << 20
	few     = 8
)

// room is for the lists of all requests, in bytes of the file: in memory they take up to
// five times as much. Lists beyond it read few objects at a time.
var room = kubeapi.Room{Most: 16 * oneRead}

func prefixOf(sel kubeapi.Selection) string {
	if sel.Namespace == "" {
		return ""
	}
	return sel.Namespace + "/"
}

// walk reads the selected objects of a moment, those of one read at a time. No transaction
// is open while the loop's body runs.
func (s *source) walk(ctx context.Context, at boltstore.Moment, q kubeapi.Query) iter.Seq2[[]*kubeapi.Object, error] {
	n := pageSize
	if s.few {
		n = few
	}
	return func(yield func([]*kubeapi.Object, error) bool) {
		for from, first := []byte(nil), true; first || from != nil; first = false {
			objs, next, err := s.read(at, q, from, n)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(nil, answer(err))
				return
			}
			from = next
			selected := slices.DeleteFunc(objs, func(o *kubeapi.Object) bool { return !q.Matches(o) })
			if len(selected) > 0 && !yield(selected, nil) {
				return
			}
		}
	}
}

// read reads at most n objects of a moment. It decodes them if the query looks at more than
// their messages.
func (s *source) read(at boltstore.Moment, q kubeapi.Query, from []byte, n int) (
	all []*kubeapi.Object, next []byte, err error,
) {
	if q.Messages && s.copies() {
		keys, versions, msgs, next, err := s.MessagesAt(at, prefixOf(q.Selection), from, n)
		for i, key := range keys {
			all = append(all, copied(key, versions[i], msgs[i]))
		}
		return all, next, err
	}
	_, objs, next, err := s.PageAt(at, prefixOf(q.Selection), from, n)
	if err != nil {
		return nil, nil, err
	}
	for _, obj := range objs {
		o, err := s.object(obj)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, o)
	}
	return all, next, nil
}

// again returns a function that returns an object of a moment, and reads it unless it is
// still in memory.
func (s *source) again(at boltstore.Moment, o *kubeapi.Object, messages bool) func() (*kubeapi.Object, error) {
	key, known := s.t.Key(o.Namespace, o.Name), weak.Make(o)
	return func() (*kubeapi.Object, error) {
		if o := known.Value(); o != nil {
			return o, nil
		}
		objs, _, err := s.read(at, kubeapi.Query{Messages: messages}, index.AppendKey(nil, keyOf(key)), 1)
		if err != nil || len(objs) == 0 || s.t.Key(objs[0].Namespace, objs[0].Name) != key {
			return nil, cmp.Or(err, boltstore.ErrTrimmed)
		}
		known = weak.Make(objs[0])
		return objs[0], nil
	}
}

// copies says whether objects can be answered as the file has them.
func (s *source) copies() bool { return s.HasMessages() && len(s.known) == 0 }

func copied(key, version string, msg []byte) *kubeapi.Object {
	namespace, name, ok := strings.Cut(key, "/")
	if !ok {
		namespace, name = "", key
	}
	return kubeapi.OfMessage(namespace, name, number(version), msg)
}

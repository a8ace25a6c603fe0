package apifile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubeapi"
)

// pageSize bounds the objects that are read at a time; the Store bounds their bytes.
const pageSize = 1000

// patience is how long a read waits for the file to reach its version, as at a server.
const patience = 3 * time.Second

// List implements kubeapi.Storage.
func (s *storage) List(ctx context.Context, t *kubeapi.Type, q kubeapi.Query) (*kubeapi.Page, error) {
	snap, err := parseSnapshot(q.Snapshot)
	if err != nil {
		return nil, kubeapi.ErrExpired // a token of another release
	}
	src, err := s.pick(t, q.Selection, snap.id)
	if err != nil {
		return nil, err
	}
	s.freshen(ctx, src)
	for try := 0; ; try++ {
		at, err := s.moment(ctx, src, q, snap)
		if err != nil {
			return nil, answer(err)
		}
		s.part.Free()
		if q.Limit == 0 {
			src.few = !s.part.Take(2 * oneRead)
			return &kubeapi.Page{Version: number(at.Version), Each: src.each(ctx, at, q)}, nil
		}
		page, err := src.page(ctx, at, q, snap.rest, &s.part)
		if err == nil {
			next := snapshot{id: src.st.Source.ID()[:idLength], series: at.Series, seq: at.Seq}
			if q.Everything() {
				next.rest = page.Rest
			}
			page.Snapshot = next.String()
			return page, nil
		}
		// The newest state may be trimmed while it is read.
		if newest := q.At == 0 && snap.id == ""; !newest || try == 3 || !errors.Is(err, boltstore.ErrTrimmed) {
			return nil, answer(err)
		}
	}
}

// each reads the selected objects of a moment, at most q.Limit of them unless that is 0. It
// gives those of a read at a time.
func (s *source) each(ctx context.Context, at boltstore.Moment, q kubeapi.Query) iter.Seq2[[]*kubeapi.Object, error] {
	return func(yield func([]*kubeapi.Object, error) bool) {
		left := int64(math.MaxInt64)
		if q.Limit > 0 {
			left = q.Limit
		}
		for r, err := range s.walk(ctx, at, q, 0) {
			if err != nil {
				yield(nil, answer(err))
				return
			}
			objs := r.objs[:min(left, int64(len(r.objs)))]
			if left -= int64(len(objs)); !yield(objs, nil) || left == 0 {
				return
			}
		}
	}
}

// moment is the state that the query asks for. The list has its version.
func (s *storage) moment(ctx context.Context, src *source, q kubeapi.Query, snap snapshot) (at boltstore.Moment, err error) {
	if snap.id != "" {
		return boltstore.Moment{Series: snap.series, Seq: snap.seq, Version: strconv.FormatUint(q.At, 10)}, nil
	}
	newest, err := s.reach(ctx, src, max(q.Least, q.At))
	if err != nil || q.At == 0 {
		return newest, err
	}
	version := strconv.FormatUint(q.At, 10)
	at, _, err = src.Moment(version)
	at.Version = version
	return at, err
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

const (
	// oneRead is about how many bytes of the file are read at a time.
	oneRead = 1 << 20
	// mostHeld is how many a page may hold in memory, about four reads.
	mostHeld = 4 * oneRead
	few      = 8
)

// room is for the lists of all requests, in bytes of the file: in memory they take up to
// five times as much. Lists beyond it read few objects at a time.
var room = kubeapi.Room{Most: 16 * oneRead}

// page reads the query's page of a moment. A page that is large, or has no room, is only
// counted, and read again while it is sent. left is how many objects the page before has
// left, 0 if that is not known.
func (s *source) page(ctx context.Context, at boltstore.Moment, q kubeapi.Query, left int64, part *kubeapi.Part) (*kubeapi.Page, error) {
	p := &kubeapi.Page{Version: number(at.Version)}
	limit := int(min(q.Limit, math.MaxInt32))
	large := limit > pageSize
	n := 0
	for r, err := range s.walk(ctx, at, q, limit) {
		if err != nil {
			return nil, err
		}
		for i, o := range r.objs[:min(len(r.objs), limit-n)] {
			if large = large || part.Held()+int64(r.share) > mostHeld || !part.Take(r.share); large {
				p.Objects = nil
			} else {
				p.Objects = append(p.Objects, o)
			}
			n, p.Last = n+1, "/"+r.keys[i]
		}
		if n == limit {
			break
		}
	}
	if large {
		part.Free()
		s.few = !part.Take(2 * oneRead)
		p.Each = s.each(ctx, at, q)
	}
	if n < limit {
		return p, nil
	}
	most := 1
	if q.Everything() && left == 0 {
		most = math.MaxInt
	}
	rest, err := s.CountAt(at, prefixOf(q.Selection), keyOf(p.Last)+"\x00", most)
	if p.Rest = int64(rest); rest > 0 && q.Everything() {
		p.Rest = max(p.Rest, left-int64(n))
	}
	return p, err
}

func prefixOf(sel kubeapi.Selection) string {
	if sel.Namespace == "" {
		return ""
	}
	return sel.Namespace + "/"
}

// walk reads the selected objects of a moment, in the order of their keys. No transaction is
// open while the loop's body runs. While a list without a limit uses one read, the next is
// under way.
func (s *source) walk(ctx context.Context, at boltstore.Moment, q kubeapi.Query, limit int) iter.Seq2[batch, error] {
	reads := s.reads(ctx, at, q, limit)
	if limit == 0 && !s.few {
		return readAhead(reads)
	}
	return reads
}

// batch has the selected objects of one read, which has about 1 MiB at most.
type batch struct {
	keys  []string
	objs  []*kubeapi.Object
	share int // of each object in the read's bytes
}

// reads reads few objects at first, and more at a time if they are not the selected ones.
func (s *source) reads(ctx context.Context, at boltstore.Moment, q kubeapi.Query, limit int) iter.Seq2[batch, error] {
	return func(yield func(batch, error) bool) {
		most := pageSize
		if s.few {
			most = few
		}
		n := most
		if limit > 0 {
			n = min(n, limit)
		}
		for from, more := keyOf(q.From), true; more; n = min(2*n, most) {
			var r batch
			var err error
			if r, more, err = s.read(at, q, from, n); err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(batch{}, err)
				return
			}
			if len(r.keys) > 0 {
				from = r.keys[len(r.keys)-1] + "\x00"
			}
			if r.keep(&q); len(r.objs) > 0 && !yield(r, nil) {
				return
			}
		}
	}
}

// keep drops what the query does not select.
func (b *batch) keep(q *kubeapi.Query) {
	b.share = oneRead / max(len(b.objs), 1)
	n := 0
	for i, o := range b.objs {
		if q.Matches(o) {
			b.keys[n], b.objs[n] = b.keys[i], o
			n++
		}
	}
	b.keys, b.objs = b.keys[:n], b.objs[:n]
}

// readAhead returns seq, whose next value is made while one is used. It has a goroutine until
// the loop ends.
func readAhead[T any](seq iter.Seq2[T, error]) iter.Seq2[T, error] {
	type value struct {
		v   T
		err error
	}
	return func(yield func(T, error) bool) {
		values, done := make(chan value), make(chan struct{})
		var maker sync.WaitGroup
		defer maker.Wait()
		defer close(done)
		maker.Go(func() {
			defer close(values)
			give := func(v T, err error) bool {
				select {
				case values <- value{v, err}:
					return true
				case <-done:
					return false
				}
			}
			defer func() {
				if p := recover(); p != nil { // net/http recovers those of a request's own goroutine only
					var none T
					give(none, fmt.Errorf("apifile: read ahead: panic: %v", p))
				}
			}()
			seq(give)
		})
		for v := range values {
			if !yield(v.v, v.err) {
				return
			}
		}
	}
}

// read reads at most n objects of a moment. It decodes them if the query looks at more than
// their messages.
func (s *source) read(at boltstore.Moment, q kubeapi.Query, from string, n int) (r batch, more bool, err error) {
	if q.Messages && s.copies() {
		var versions []string
		var msgs [][]byte
		r.keys, versions, msgs, more, err = s.MessagesAt(at, prefixOf(q.Selection), from, n)
		for i, key := range r.keys {
			r.objs = append(r.objs, copied(key, versions[i], msgs[i]))
		}
		return r, more, err
	}
	var objs []any
	if r.keys, objs, more, err = s.PageAt(at, prefixOf(q.Selection), from, n); err != nil {
		return batch{}, false, err
	}
	for _, obj := range objs {
		o, err := s.object(obj)
		if err != nil {
			return batch{}, false, err
		}
		r.objs = append(r.objs, o)
	}
	return r, more, nil
}

// again returns a function that returns an object of a moment, and reads it unless it is
// still in memory.
func (s *source) again(at boltstore.Moment, o *kubeapi.Object, messages bool) func() (*kubeapi.Object, error) {
	key, known := keyOf(s.t.Key(o.Namespace, o.Name)), weak.Make(o)
	return func() (*kubeapi.Object, error) {
		if o := known.Value(); o != nil {
			return o, nil
		}
		r, _, err := s.read(at, kubeapi.Query{Messages: messages}, key, 1)
		if err != nil || len(r.keys) == 0 || r.keys[0] != key {
			return nil, cmp.Or(err, boltstore.ErrTrimmed)
		}
		known = weak.Make(r.objs[0])
		return r.objs[0], nil
	}
}

// copies says whether objects can be answered as the file has them.
func (s *source) copies() bool { return s.HasMessages() && len(s.label) == 0 && len(s.known) == 0 }

func copied(key, version string, msg []byte) *kubeapi.Object {
	namespace, name, ok := strings.Cut(key, "/")
	if !ok {
		namespace, name = "", key
	}
	return kubeapi.OfMessage(namespace, name, number(version), msg)
}

// snapshot is the state in a continue token, without its version. The zero value is none.
type snapshot struct {
	id     string // the beginning of the source's
	series int64
	seq    uint64
	rest   int64 // how many objects the page has left, 0 if a selector leaves some out
}

const idLength = 8

func (s snapshot) String() string {
	return fmt.Sprintf("%s.%d.%d.%d", s.id, s.series, s.seq, s.rest)
}

func parseSnapshot(text string) (s snapshot, err error) {
	if text == "" {
		return s, nil
	}
	parts := strings.Split(text, ".")
	if len(parts) != 4 || len(parts[0]) != idLength {
		return s, fmt.Errorf("apifile: %q is no snapshot", text)
	}
	if s.series, err = strconv.ParseInt(parts[1], 10, 64); err != nil {
		return s, err
	}
	if s.seq, err = strconv.ParseUint(parts[2], 10, 64); err != nil {
		return s, err
	}
	if s.rest, err = strconv.ParseInt(parts[3], 10, 64); err != nil {
		return s, err
	}
	s.id = parts[0]
	return s, nil
}

// Package live reads a file even while another process has it open.
//
// bbolt's lock keeps other processes out of a file. So its owner can serve a read-only
// unix socket beside it ([Serve]), and [Dial] connects to it. [File] reads a file that
// this process has open. Both readers give the same answers ([Reader]).
//
// The socket is for the same user and root. It has mode 0600, and other peers are turned
// away if the system names them. No client can hold up the owner. Answers are read in
// pages, and no transaction is open while one is sent. Connections, requests and times to
// send or accept are bounded.
package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/history"
	"github.com/kubewake/kubewake/index"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

// Reader reads a file. Its methods may be called concurrently. Objects are the
// caller's to keep and change.
type Reader interface {
	// Status returns the state of the file and, through a socket, its owner's report.
	Status(ctx context.Context) (Status, error)
	// Objects calls fn with each object that the query selects, in the order of the file,
	// until fn fails. Objects are read in pages, each from one commit. They are read one
	// by one if the query asks for a namespace or an order that the file does not have,
	// see Query.Sorted.
	Objects(ctx context.Context, q Query, fn func(*unstructured.Unstructured) error) error
	// Index calls fn with each value of the index that the query names, sorted, or only
	// with Query.Value. An owner of an earlier release returns all values in either case.
	// Each value is of one commit. ErrNotFound: the file has no such index. ErrSecret:
	// the index of Secrets is not the one by namespace, and the query does not show
	// secrets.
	Index(ctx context.Context, q Query, fn func(IndexValue) error) error
	// History calls fn with each version of the object at Query.Key in the journal,
	// oldest first, until fn fails. An empty key means all objects.
	History(ctx context.Context, q Query, fn func(Version) error) error
	// Snapshot writes a consistent copy of the whole file.
	Snapshot(ctx context.Context, w io.Writer) error
	// Close releases the reader.
	Close() error
}

// Status is the state of a file.
type Status struct {
	File    string            `json:"file"`
	Bytes   int64             `json:"bytes"`
	Sources []boltstore.State `json:"sources"`
	// SetAside are the files beside this one that could not be used.
	SetAside []boltstore.Aside `json:"setAside,omitempty"`
	// Owner is nil unless an owner answered.
	Owner *Owner `json:"owner,omitempty"`
}

// Owner is the process that has the file open.
type Owner struct {
	PID int `json:"pid"`
	// Error says why commits fail at the moment, "" if they succeed.
	Error string `json:"error,omitempty"`
	// Moved says why the owner's file is not the one at the path, "" if it is: see
	// boltstore.ErrMoved. The rest of the Status is then about the owner's file.
	Moved string `json:"moved,omitempty"`
	// Sources has the state of each source that the owner keeps up to date, by name.
	Sources map[string]string `json:"sources,omitempty"`
}

// Query selects objects of a source.
type Query struct {
	Source boltstore.Source
	// Key selects one object, namespace/name.
	Key string
	// At asks for the object at Key as it was at that moment, see history.At.
	At history.Moment
	// Namespace selects the objects in it, by their keys. In a source with keys of its
	// own it also selects objects without a namespace. An owner of an earlier release
	// returns all objects.
	Namespace string
	// Index and Value select the objects with that value under the index. For Reader.Index
	// an empty Value means all.
	Index, Value string
	// Sorted asks for all objects of a source in the order of their keys. That is the
	// file's order, unless the source has keys of more than 512 bytes; an owner of an
	// earlier release does not sort these.
	Sorted bool
	// Secrets shows the data of Secrets. Otherwise they are redacted.
	Secrets bool
}

// Version is one version of an object.
type Version struct {
	history.Version
	// Object is the object after the change. For a delete it is the last known one, if
	// there is one.
	Object *unstructured.Unstructured `json:"object,omitempty"`
}

// IndexValue is a value of an index, and the keys that have it, sorted.
type IndexValue struct {
	Value string   `json:"value"`
	Keys  []string `json:"keys"`
}

// sentValue is an IndexValue on its way through the socket. JSON has only UTF-8.
type sentValue struct {
	IndexValue
	// Bytes are the value and the keys, if one of them is not UTF-8.
	Bytes [][]byte `json:"bytes,omitempty"`
}

func sent(v IndexValue) (s sentValue) {
	s.IndexValue = v
	all := append([]string{v.Value}, v.Keys...)
	if slices.ContainsFunc(all, func(text string) bool { return !utf8.ValidString(text) }) {
		for _, text := range all {
			s.Bytes = append(s.Bytes, []byte(text))
		}
	}
	return s
}

func (s sentValue) value() IndexValue {
	if len(s.Bytes) != 1+len(s.Keys) {
		return s.IndexValue // UTF-8, or from an owner of an earlier release
	}
	v := IndexValue{Value: string(s.Bytes[0])}
	for _, key := range s.Bytes[1:] {
		v.Keys = append(v.Keys, string(key))
	}
	return v
}

// ErrNotFound: the file has no such source, object or index. ErrUnknown: the file does
// not have the object's state at that moment. ErrSecret: the answer may have the data of
// Secrets, which the query does not ask for.
var (
	ErrNotFound = errors.New("not found")
	ErrUnknown  = history.ErrUnknown
	ErrSecret   = errors.New("it may show the data of secrets")
)

// pageSize bounds the objects of a page; the Store bounds their bytes.
const pageSize = 256

type file struct{ db *boltstore.DB }

// File reads a file that is open. Close does not close it.
func File(db *boltstore.DB) Reader { return file{db} }

func (file) Close() error { return nil }

func (f file) Status(context.Context) (Status, error) {
	states, err := f.db.States()
	return Status{File: f.db.Path(), Bytes: f.db.Size(), Sources: states, SetAside: f.db.Aside()}, err
}

// open finds the query's source.
func (f file) open(q Query) (*view, error) {
	s, err := f.db.View(q.Source)
	if errors.Is(err, boltstore.ErrNoSource) {
		return nil, fmt.Errorf("source %s: %w", q.Source, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	states, err := f.db.Sources()
	if err != nil {
		return nil, err
	}
	for _, st := range states {
		if st.Source == q.Source {
			return &view{s, st, q}, nil
		}
	}
	return nil, fmt.Errorf("source %s: %w", q.Source, ErrNotFound)
}

func (f file) Objects(ctx context.Context, q Query, fn func(*unstructured.Unstructured) error) error {
	v, err := f.open(q)
	if err != nil {
		return err
	}
	if q.Key != "" {
		obj, ok, err := v.get()
		if err == nil && !ok {
			err = fmt.Errorf("%s %q: %w", q.Source, q.Key, ErrNotFound)
		}
		if err != nil {
			return err
		}
		return v.give(obj, fn)
	}
	if q.Namespace != "" && !v.keyed() {
		q.Namespace, v.query.Namespace, fn = "", "", within(q.Namespace, fn)
	}
	if (q.Sorted || q.Namespace != "") && q.Index == "" {
		jumbled, err := v.jumbled()
		if err != nil {
			return err
		}
		if jumbled {
			return v.sorted(ctx, fn)
		}
	}
	return v.pages(ctx, fn)
}

// pages hands fn the query's objects in the file's order, page by page.
func (v *view) pages(ctx context.Context, fn func(*unstructured.Unstructured) error) error {
	q, epoch, from := v.query, uint64(0), []byte(nil)
	if q.Index == "" && q.Namespace != "" {
		from = index.AppendKey(nil, v.prefix())
	}
	for first := true; ; first = false {
		var p boltstore.Page
		var err error
		if q.Index != "" {
			p, err = v.store.IndexPage(q.Index, q.Value, from, pageSize)
		} else {
			p, err = v.store.Page(from, pageSize)
		}
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case first:
			epoch = p.Epoch
		case p.Epoch != epoch || !p.Synced:
			return v.errSetAside()
		}
		for i, obj := range p.Objects {
			if !strings.HasPrefix(p.Keys[i], v.prefix()) {
				if q.Index == "" {
					return nil // the next objects are in other namespaces
				}
				continue
			}
			if err := v.give(obj, fn); err != nil {
				return err
			}
		}
		if from = p.Next; from == nil {
			return nil
		}
	}
}

// jumbled says whether the file's order is not that of the keys: some keys are so long that
// the file has their hashes.
func (v *view) jumbled() (bool, error) {
	long, err := v.store.Page(index.Hashed, 1)
	return len(long.Keys) > 0, err
}

func (f file) Index(ctx context.Context, q Query, fn func(IndexValue) error) error {
	v, err := f.open(q)
	if err != nil {
		return err
	}
	if v.store.GetIndexers()[q.Index] == nil {
		return fmt.Errorf("index %q of %s: %w; it has: %s", q.Index, q.Source, ErrNotFound, strings.Join(v.state.Indices, ", "))
	}
	if v.hides(v.state.Kind) && q.Index != cache.NamespaceIndex {
		return fmt.Errorf("index %q of %s: %w", q.Index, q.Source, ErrSecret)
	}
	values := []string{q.Value}
	if q.Value == "" {
		values = v.store.ListIndexFuncValues(q.Index)
		slices.Sort(values)
	}
	for _, value := range values {
		keys, err := v.store.IndexKeys(q.Index, value)
		if err == nil && len(keys) > 0 { // it may have gone since
			err = fn(IndexValue{value, keys})
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	return v.store.Err()
}

func (f file) History(ctx context.Context, q Query, fn func(Version) error) error {
	v, err := f.open(q)
	if err != nil {
		return err
	}
	for h, err := range history.Of(v.store, q.Key) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		ver, kind := Version{Version: h}, v.state.Kind
		if h.Object != nil {
			if ver.Object, err = v.unstructured(h.Object); err != nil {
				return err
			}
			kind = ver.Object.GetKind()
		}
		if v.hides(kind) {
			redactDiff(h.Diff)
		}
		if err := fn(ver); err != nil {
			return err
		}
	}
	return nil
}

func (f file) Snapshot(ctx context.Context, w io.Writer) error {
	s, err := f.db.Snapshot()
	if err != nil {
		return err
	}
	_, err = io.Copy(w, until{ctx, s})
	return errors.Join(err, s.Close())
}

// until reads until the context ends.
type until struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (u until) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

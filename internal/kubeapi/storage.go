package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"iter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
)

// Storage has the objects. All methods are safe for concurrent use. An error that is an
// API status is answered as it is, [ErrExpired] and [TooLargeError] in the API's form,
// and any other as 500.
type Storage interface {
	// Types are the types that are served, in the order of discovery.
	Types() []*Type
	// Get returns the object of that name in the newest state, nil if there is none. The
	// state must not be older than least.
	Get(ctx context.Context, t *Type, namespace, name string, least uint64) (*Object, error)
	// List returns a page of one state.
	List(ctx context.Context, t *Type, q Query) (*Page, error)
	// Watch begins a watch. The caller closes it.
	Watch(ctx context.Context, t *Type, q WatchQuery) (Watch, error)
}

// ErrExpired says that a Storage no longer has the state or the changes asked for.
// [Expired] makes one that says why.
var ErrExpired = errors.New("too old")

// ErrNotHere says that a Storage does not have the objects, but that another server may.
// [NotHere] makes one that says why.
var ErrNotHere = errors.New("not here")

// NotHere is ErrNotHere that is answered with err.
func NotHere(err error) error { return fmt.Errorf("%w: %w", ErrNotHere, err) }

// Expired is ErrExpired with the message of the API.
func Expired(version, oldest uint64) error {
	return fmt.Errorf("%w resource version: %d (%d)", ErrExpired, version, oldest)
}

// TooLargeError says that a version is newer than the newest state.
type TooLargeError struct{ Version, Current uint64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("Too large resource version: %d, current: %d", e.Version, e.Current)
}

// Selection says which objects a list or watch asks for.
type Selection struct {
	Namespace string // "" is any
	Labels    labels.Selector
	Fields    fields.Selector
}

// Everything says whether no selector leaves anything out.
func (q *Selection) Everything() bool { return q.Labels.Empty() && q.Fields.Empty() }

// Matches says whether o is selected; nil is not.
func (q *Selection) Matches(o *Object) bool {
	if o == nil || q.Namespace != "" && q.Namespace != o.Namespace {
		return false
	}
	return (q.Labels.Empty() || q.Labels.Matches(o.Labels)) && (q.Fields.Empty() || q.Fields.Matches(o.Fields()))
}

// Prefix is the beginning of the keys of the selected objects: "" or "/namespace".
func (q *Selection) Prefix() string {
	if q.Namespace == "" {
		return ""
	}
	return "/" + q.Namespace
}

// Query is a list.
type Query struct {
	Selection
	At    uint64 // the version of the state; 0 is the newest
	Least uint64 // the state must not be older
	From  string // the first key, of a list that goes on
	Limit int64  // how many objects; 0 is all
	// Messages: nothing but the protobuf messages of the objects is looked at. See
	// OfMessage.
	Messages bool
}

// Page is the answer to a Query, in the order of the keys.
type Page struct {
	Version uint64
	Objects []*Object
	// Each, unless nil, reads the objects in place of Objects, some at a time. An error ends
	// them. They are the same each time.
	Each iter.Seq2[[]*Object, error]
	// Last is the key of the last object, and Rest counts all objects below the
	// selection's prefix that come after it. Only a Storage that applies limits has them.
	Last string
	Rest int64
}

// WatchQuery is a watch.
type WatchQuery struct {
	Selection
	// Version is the version after which changes are asked for; 0 is that of the newest
	// state. It may be newer than the newest state, but not with Initial.
	Version uint64
	// Initial: the watch begins with the objects of the newest state, which must not be
	// older than Version.
	Initial bool
	// Newest: the watch takes the place of a list without a version, as client-go's
	// informers send it. So the state must not be older than the request.
	Newest bool
	// Messages is as in Query. Of Change.Prev only the name is looked at.
	Messages bool
}

// Watch is one watch. One goroutine calls its methods, except Done.
type Watch interface {
	// Start is where the watch begins.
	Start() Start
	// Next returns the next changes, or none if there are none yet. After an error the
	// watch is over.
	Next(ctx context.Context) (Batch, error)
	// Done is closed when the Storage ends the watch. Next then returns how: an API
	// status, ErrExpired, [ErrWatchOver], or http.ErrAbortHandler.
	Done() <-chan struct{}
	// Close releases the watch.
	Close()
}

// ErrWatchOver ends a watch in good order.
var ErrWatchOver = errors.New("watch over")

// Start is where a watch begins.
type Start struct {
	// Version is that of the state.
	Version uint64
	// Known is the version that a bookmark must be newer than.
	Known uint64
	// Objects are the selected objects of the state, if WatchQuery.Initial. An error
	// ends them, and the watch.
	Objects iter.Seq2[*Object, error]
}

// Batch is a part of the changes, in their order.
type Batch struct {
	Changes []*Change
	// Each, unless nil, reads the changes in place of Changes, before the next call of
	// Next. An error ends the watch.
	Each iter.Seq2[*Change, error]
	// Version is the version up to which the changes are complete. Only in a batch
	// without changes may it be the same as before.
	Version uint64
	// Mark: the batch has no changes, and ends a series whose versions are not in order.
	// A bookmark should follow at once.
	Mark bool
	// Changed is closed once there may be more changes. It is needed only in a batch
	// without any.
	Changed <-chan struct{}
}

// Change is one write. Cur is nil for a deletion, Prev for a creation. It is immutable.
type Change struct {
	Version   uint64
	Cur, Prev *Object
	Final     *Object       // the final state of a deleted object, if the Storage knows it
	gone      lazy[*Object] // Prev as a DELETED event shows it
	// Again, unless nil, returns the change once more; see [Object.Again].
	Again func() (*Change, error)
}

// left returns the object as the DELETED event of a watch shows it whose selection it has left.
func (c *Change) left(t *Type) (*Object, error) {
	return c.gone.get(func() (*Object, error) {
		o, err := t.AtVersion(c.Prev, c.Version)
		if again := c.Again; err == nil && again != nil {
			o.Again = func() (*Object, error) {
				c, err := again()
				if err != nil {
					return nil, err
				}
				return c.left(t)
			}
		}
		return o, err
	})
}

// DropEncodings frees the forms that can be computed again.
func (c *Change) DropEncodings() {
	if c.Prev != nil {
		c.Prev.DropEncodings()
	}
	c.gone.drop()
}

// view returns the change as a watch with this selection sees it. An object that leaves the
// selection is DELETED in its last matching state, with the version of the change.
func (q *Selection) view(t *Type, c *Change) (watch.EventType, *Object, error) {
	switch was, is := q.Matches(c.Prev), q.Matches(c.Cur); {
	case is && was:
		return watch.Modified, c.Cur, nil
	case is:
		return watch.Added, c.Cur, nil
	case was && c.Final != nil && c.Cur == nil:
		return watch.Deleted, c.Final, nil
	case was:
		o, err := c.left(t)
		if err != nil {
			return "", nil, fmt.Errorf("delete %s/%s: %w", c.Prev.Namespace, c.Prev.Name, err)
		}
		return watch.Deleted, o, nil
	default:
		return "", nil, nil
	}
}

// errTooLarge is the answer to a read at a version that does not exist yet. The real
// server gives it after waiting three seconds for the version.
func errTooLarge(e *TooLargeError) *apierrors.StatusError {
	err := apierrors.NewTimeoutError(e.Error(), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
)

// errNoStream: the server does not begin a watch with all objects.
var errNoStream = errors.New("reflector: objects are not streamed")

// streamed reads everything over a watch that begins with all objects
// (WatchList), a page's worth at a time. What has been read is lost if it
// breaks.
func (l *lister) streamed(ctx context.Context) fifo.Pages {
	return func(r *boltstore.Relist) (string, string, error) {
		s := l.s
		timeout := int64(time.Hour / time.Second)
		w, _, err := s.open(ctx, metav1.ListOptions{
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, SendInitialEvents: new(true),
			AllowWatchBookmarks: true, TimeoutSeconds: &timeout,
		})
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			return "", "", fmt.Errorf("%w: %w", errNoStream, err)
		}
		if err != nil {
			return "", "", err
		}
		defer w.Stop()
		alarm := s.o.Clock.NewTimer(s.o.QuietTimeout)
		defer alarm.Stop()
		var page []runtime.Object
		for some := false; ; some = true {
			var ev watch.Event
			var open bool
			select {
			case <-ctx.Done():
				return "", "", context.Cause(ctx)
			case <-alarm.C():
				if some { // it may be waiting for changes
					return "", "", errNoStream
				}
				return "", "", fmt.Errorf("%w: for %s, from %s", errQuiet, s.o.QuietTimeout, s.store.Source())
			case ev, open = <-w.ResultChan():
			}
			alarm.Reset(s.o.QuietTimeout)
			if !open {
				return "", "", errors.New("the stream ended before all objects had come")
			}
			end := false
			switch ev.Type {
			case watch.Error:
				return "", "", apierrors.FromObject(ev.Object)
			case watch.Bookmark:
				m, err := meta.Accessor(ev.Object)
				if err != nil {
					return "", "", err
				}
				if end = m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"; !end {
					return "", "", errNoStream // it did not know what it was asked for
				}
			case watch.Added:
				page = append(page, ev.Object)
			default:
				return "", "", errNoStream // likewise
			}
			if len(page) > 0 && (end || int64(len(page)) >= l.limit) {
				if err := r.Page(page); err != nil {
					return "", "", err
				}
				page = nil
			}
			if end {
				return l.whole(versionOf(ev.Object))
			}
		}
	}
}

// whole ends a stream that is of one version.
func (l *lister) whole(rv string) (string, string, error) {
	if isBehind(rv, l.least) {
		return "", "", errWentBack
	}
	l.rv, l.newest = rv, rv
	return rv, rv, nil
}

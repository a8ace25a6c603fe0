package reflector

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/internal/listing"
)

// check fails if the answer is no list, or may come from another cluster. At the last page
// it also asks how far the watch must go.
func (l *lister) check(ctx context.Context, list runtime.Object, kept []listing.Object, retried bool) error {
	if err := l.isList(list, kept); err != nil {
		return err
	}
	if err := l.askTarget(ctx, list); err != nil {
		return err
	}
	return l.same(ctx, retried)
}

// same fails if the page may come from another cluster than the one that was found out: after
// a break of the link, or over another connection, it asks again.
func (l *lister) same(ctx context.Context, retried bool) error {
	if l.s.cluster.server == "" {
		return nil // the client's answers cannot be seen
	}
	if l.s.cluster.stated().reconnected() {
		retried = true
	}
	if !retried {
		return nil
	}
	told, err := l.s.requests.clusterUID(ctx, time.Now())
	if uid := l.s.cluster.is().ClusterUID; err == nil && uid != "" && told.uid != "" && told.uid != uid {
		return errAnother
	}
	return err
}

// isList fails if the page is empty and states no version, while the last list or an
// earlier page did: see requests.lists.
func (l *lister) isList(list runtime.Object, kept []listing.Object) error {
	m, err := meta.ListAccessor(list)
	if err != nil || m.GetResourceVersion() != "" || meta.LenList(list)+len(kept) > 0 ||
		cmp.Or(l.at.rv, l.s.store.Upstream.Facts().Listed) == "" {
		return err
	}
	return fmt.Errorf("%w: it has neither objects nor a resourceVersion, and the last one had", errNoList)
}

// askTarget asks, at the last page, how far the watch must go to bring the objects left to
// it.
func (l *lister) askTarget(ctx context.Context, list runtime.Object) error {
	if !l.moved {
		return nil
	}
	m, err := meta.ListAccessor(list)
	if err != nil || m.GetContinue() != "" {
		return err
	}
	l.at.settled, err = l.s.serverVersion(ctx)
	return err
}

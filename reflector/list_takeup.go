package reflector

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kubewake/kubewake/boltstore"
)

// takeUp goes on with a first list that was interrupted, if the relist has one.
// The server's version is asked for before: a server that is behind what has
// been read is not the one it was read from. What has happened since is left to
// the watch, which must reach that version until anything is confirmed.
func (l *lister) takeUp(ctx context.Context) error {
	p, ok := l.relist.TakenUp()
	if !ok {
		return nil
	}
	l.taken = true
	stated, err := l.s.serverVersion(ctx)
	if err != nil {
		return err
	}
	if c, err := resourceversion.CompareResourceVersion(stated, p.Newest); c < 0 || err != nil && stated != p.Newest || stated == "" {
		return fmt.Errorf("%w: it is at %s, and was at %s", errOtherServer, stated, p.Newest)
	}
	by := l.s.cluster.answered()
	if mayBeOther(p.By, by, l.s.cluster.uid()) {
		return fmt.Errorf("%w: flow schema and CA were %q and %q, and are %q and %q", errOtherServer, p.By.FlowSchemaUID, p.By.CA, by.FlowSchemaUID, by.CA)
	}
	l.flow = by.FlowSchemaUID // the pages to come must name it, too
	l.at.rv, l.at.token, l.at.began, l.at.stated = p.ResourceVersion, p.Continue, p.Began, stated
	l.at.newest = later(p.Newest, stated)
	l.form = p.Form // not of the pages to come: they are compared once more where it has changed
	if !l.size.fixed && p.PageSize > 0 {
		l.size.limit = p.PageSize
	}
	l.s.o.Logger.V(1).Info("An interrupted list is gone on with", "source", l.s.store.Source().String(),
		"resourceVersion", l.at.rv, "began", l.at.began, "objects", l.relist.Objects)
	return nil
}

// soon leaves the watch that was opened for a list that was taken up at the given
// time, since its version was old, if it has ended soon: a short one confirms
// sooner.
func (l *lister) soon(taken time.Time) {
	if l.s.o.Clock.Since(taken) < aheadAfter {
		l.ahead.Stop()
		l.ahead = nil
	}
}

// progress is what has been read once this page is in the file. newest is the
// page's version.
func (l *lister) progress(newest string) boltstore.ListProgress {
	return boltstore.ListProgress{ResourceVersion: l.at.rv, Newest: newest, Continue: l.at.token, PageSize: l.size.limit, Began: l.at.began, By: l.s.cluster.answered(), Form: l.form}
}

// mayBeOther says whether the cluster that answers may be another than that of
// before. Where its UID is not known (the store has compared it where it is) any
// difference counts: what is at stake is progress only.
func mayBeOther(before, by boltstore.Server, clusterUID string) bool {
	if clusterUID != "" {
		return false
	}
	return before.FlowSchemaUID != by.FlowSchemaUID || before.CA != by.CA
}

package reflector

import (
	"context"
	"fmt"
	"time"

	"github.com/kubewake/kubewake/internal/listing"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// takeUp goes on with an interrupted first list, if the relist has one. It first asks for
// the server's version: a server that is behind the pages read so far is not the one that
// they came from. The watch brings everything that has happened since. Nothing is
// confirmed before the watch has reached that version.
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
	by := l.s.cluster.by()
	if mayBeOther(p.By, by, l.s.cluster.uid()) {
		return fmt.Errorf("%w: flow schema and CA were %q and %q, and are %q and %q", errOtherServer, p.By.FlowSchemaUID, p.By.CA, by.FlowSchemaUID, by.CA)
	}
	l.flow = by.FlowSchemaUID // the next pages must name it
	l.at.rv, l.at.token, l.at.began, l.at.stated = p.ResourceVersion, p.Continue, p.Began, stated
	l.at.newest, l.at.target = p.Newest, later(p.Newest, stated)
	l.form = p.ServedForm // if it has changed since, the next relist compares content
	if !l.size.fixed && p.PageSize > 0 {
		l.size.limit = p.PageSize
	}
	l.s.log.V(1).Info("A list that was interrupted goes on", "source", l.s.store.Source().String(),
		"resourceVersion", l.at.rv, "began", l.at.began, "objects", l.relist.Objects)
	return nil
}

// soon ends the watch that was opened beside a list if the list ended soon after it was
// taken up: a short watch confirms sooner.
func (l *lister) soon(taken time.Time) {
	if l.s.clock.Since(taken) < aheadAfter {
		l.ahead.Stop()
		l.ahead = nil
	}
}

// progress is how far the list has come once this page is in the file. newest is
// the page's version.
func (l *lister) progress(newest string) listing.Progress {
	by := l.s.cluster.by()
	by.ClusterUID = l.s.cluster.uid()
	return listing.Progress{ResourceVersion: l.at.rv, Newest: newest, Continue: l.at.token, PageSize: l.size.limit, Began: l.at.began, By: by, ServedForm: l.form}
}

// mayBeOther says whether another cluster than before may answer. If both UIDs are known,
// the store has compared them. Otherwise any difference counts, since only progress can
// be lost.
func mayBeOther(before, by listing.Server, clusterUID string) bool {
	if before.ClusterUID != "" && clusterUID != "" {
		return false
	}
	return before.FlowSchemaUID != by.FlowSchemaUID || before.CA != by.CA
}

package reflector

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kubewake/kubewake/internal/listing"
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
	if c, err := resourceversion.CompareResourceVersion(stated, p.Newest); c < 0 || err != nil &&
		stated != p.Newest || stated == "" {
		return fmt.Errorf("%w: it is at %s, and was at %s", errOtherServer, stated, p.Newest)
	}
	if by := l.s.cluster.is(); by.Address != "" && mayBeOther(p.By, by) {
		return fmt.Errorf("%w: its CA was %q, and is %q", errOtherServer, p.By.CA, by.CA)
	}
	l.at.rv, l.at.token, l.at.began, l.at.stated = p.ResourceVersion, p.Continue, p.Began, stated
	l.at.newest, l.at.target = p.Newest, later(p.Newest, stated)
	l.sign = p.ServedForm // if it has changed since, the next relist compares content
	if !l.size.fixed && p.PageSize > 0 {
		l.size.limit = p.PageSize
	}
	l.s.log.V(1).Info("A list that was interrupted goes on", "source", l.s.store.Source().String(),
		"resourceVersion", l.at.rv, "began", l.at.began, "objects", l.relist.Objects)
	return nil
}

// progress is how far the list has come once this page is in the file. newest is
// the page's version.
func (l *lister) progress(newest string) listing.Progress {
	return listing.Progress{
		ResourceVersion: l.at.rv, Newest: newest, Continue: l.at.token, PageSize: l.size.limit, Began: l.at.began,
		By: l.s.cluster.is(), ServedForm: l.sign,
	}
}

// mayBeOther says whether another cluster than before may answer. If both UIDs are known,
// the store has compared them. Otherwise only the same CA shows that it is the same.
func mayBeOther(before, by listing.Server) bool {
	return (before.ClusterUID == "" || by.ClusterUID == "") && (by.CA == "" || before.CA != by.CA)
}

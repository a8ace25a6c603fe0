package reflector

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"k8s.io/klog/v2"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/internal/listing"
)

// cluster finds out which cluster answers, once after each time that the link was broken,
// before any of its answers is believed. If the server's answer names the flow schema
// that the file knows, this costs no request: a schema is an object of the cluster, with
// a UID of its own.
type cluster struct {
	server   string // its address; "": the client's requests cannot be seen
	requests *requests
	queue    *fifo.Queue
	store    *boltstore.Claimed
	log      klog.Logger

	mu      sync.Mutex
	origin  *origin // of the last stated version; nil: none since the link broke
	checked bool
	id      finding
	untold  bool // in this life the server has refused to tell its UID
}

// finding is the result.
type finding struct {
	uid   string // of the cluster
	conn  string // connection over which it was asked for, "" if it was not
	other bool   // it is not the file's cluster
	// sure: it is the same cluster, or the file knows no UID. Otherwise nothing shows
	// that it is another one, but what it says about itself is not noted.
	sure bool
}

var errNoCluster = errors.New("reflector: the cluster that answers has no kube-system yet, so nothing shows whether it is the same")

// otherCluster finds out whether the server is that of another cluster than the
// file's. If it is, the file's contents are removed.
func (s *ListerWatcher) otherCluster(ctx context.Context) (bool, error) {
	if !s.cluster.due() {
		return false, nil
	}
	known := s.store.State()
	id, by, err := s.cluster.identify(ctx, known, s.cluster.by())
	if err != nil {
		return false, s.fail(ctx, err)
	}
	other, err := s.cluster.noteOrEmpty(ctx, known, id, by)
	if err == nil && id.other {
		s.another()
	}
	return other, err
}

// another notes that another cluster answers. Findings about the previous cluster do not
// hold for it.
func (s *ListerWatcher) another() {
	s.link.another()
	s.audit.another()
}

// forget: the link is broken, and another cluster may answer next.
func (c *cluster) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checked, c.origin = false, nil
}

// recheck: another cluster may have answered over the same link.
func (c *cluster) recheck() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checked = false
}

// relisted: the file's contents are from the cluster that answers.
func (c *cluster) relisted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checked = true
}

// trace returns a context whose requests count as those that state the server's version.
func (c *cluster) trace(ctx context.Context) context.Context {
	o := &origin{dated: c.store.ServerTime}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.origin = o
	return o.trace(ctx)
}

// stated is the origin of the last stated version.
func (c *cluster) stated() *origin {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.origin
}

// restate takes an origin back: what was asked since does not state the version.
func (c *cluster) restate(o *origin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.origin = o
}

// answeredOver is the connection over which the server last stated its version, and the
// flow schema that it named.
func (c *cluster) answeredOver() (conn, flow string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.origin.answeredOver()
}

// reconnected says whether these requests took more than one connection.
func (c *cluster) reconnected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.origin.reconnected()
}

// by is what the server that last stated its version said about itself.
func (c *cluster) by() listing.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.origin.server()
}

// answered is what a relist notes about the server that sent its pages.
func (c *cluster) answered() listing.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.id.sure {
		return listing.Server{}
	}
	return c.origin.server()
}

// uid is the UID of the cluster that answers, "" if it is not known.
func (c *cluster) uid() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id.uid
}

// expect returns the connection over which the cluster was found out, and the flow schema
// that a list's pages must name, "" if the first page decides. If the cluster has not been
// found out, the first page shows whether it is the file's.
func (c *cluster) expect(known boltstore.State) (conn, flow string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.checked {
		c.id = finding{uid: known.ClusterUID, sure: true}
		return "", known.FlowSchemaUID
	}
	_, flow = c.origin.answeredOver()
	return c.id.conn, flow
}

// due says whether the cluster is still to be found out.
func (c *cluster) due() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.checked && c.server != ""
}

// noteOrEmpty removes the file's contents if the cluster is another one, since none
// of its objects has been deleted. It notes the server that answers, also before the
// first list.
func (c *cluster) noteOrEmpty(
	ctx context.Context, known boltstore.State, id finding, by listing.Server,
) (other bool, err error) {
	if id.other && (known.Synced || known.Objects > 0) {
		if err := c.empty(ctx, known, by); err != nil {
			return false, err
		}
	} else {
		by.Other = id.other
		c.note(known, by, id.sure)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checked, c.id = true, id
	return id.other && known.Synced, nil
}

// identify asks for the UID of kube-system, if it must. It returns by, extended by that
// answer.
func (c *cluster) identify(ctx context.Context, known boltstore.State, by listing.Server) (finding, listing.Server, error) {
	by.Address = c.server
	if by.FlowSchemaUID != "" && by.FlowSchemaUID == known.FlowSchemaUID {
		if known.ClusterUID == "" {
			by.ClusterUID = c.learn(ctx)
		}
		return finding{uid: cmp.Or(known.ClusterUID, by.ClusterUID), sure: true}, by, nil
	}
	told, err := c.requests.clusterUID(ctx)
	if err != nil {
		return finding{}, by, err
	}
	c.tells(told)
	if told.none && known.ClusterUID != "" {
		return finding{}, by, errNoCluster // it is one of the first things that a server makes
	}
	by.ClusterUID, by.CA = told.uid, cmp.Or(by.CA, told.ca)
	other := isOther(known, by)
	return finding{told.uid, told.conn, other, other || told.uid != "" || known.ClusterUID == ""}, by, nil
}

// learn asks for the UID of a cluster that has not told it so far, perhaps since it was
// starting or did not allow it. If the answer is "", the next doubt asks again, or the
// next life if the cluster refuses.
func (c *cluster) learn(ctx context.Context) (uid string) {
	c.mu.Lock()
	untold := c.untold
	c.mu.Unlock()
	if untold {
		return ""
	}
	told, err := c.requests.clusterUID(ctx)
	if err != nil {
		return ""
	}
	c.tells(told)
	return told.uid
}

// tells notes whether the server tells its UID.
func (c *cluster) tells(told clusterAnswer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.untold = told.uid == "" && !told.none
}

// isOther says whether the cluster that answers is not the one that the file knows. If
// its UID may not be read, two of address, CA and flow schema must differ: each of them
// alone may change in the life of a cluster.
func isOther(known boltstore.State, by listing.Server) bool {
	if by.ClusterUID != "" && known.ClusterUID != "" {
		return by.ClusterUID != known.ClusterUID
	}
	others := 0
	for _, x := range [][2]string{{known.Server, by.Address}, {known.ServerCA, by.CA}, {known.FlowSchemaUID, by.FlowSchemaUID}} {
		if x[0] != "" && x[1] != "" && x[0] != x[1] {
			others++
		}
	}
	return others > 1
}

// empty removes the contents from the file: they belong to another cluster.
func (c *cluster) empty(ctx context.Context, known boltstore.State, by listing.Server) error {
	if err := c.queue.Flush(ctx); err != nil {
		return err
	}
	if err := c.store.Empty(); err != nil {
		return err
	}
	c.note(boltstore.State{}, by, true)
	c.queue.Unconfirm(true)
	c.log.Info("Another cluster answers, the cached objects are removed", "source", c.store.Source().String(),
		"server", by.Address, "clusterUID", by.ClusterUID, "ca", by.CA, "serverBefore", known.Server, "clusterUIDBefore", known.ClusterUID, "caBefore", known.ServerCA)
	return nil
}

// note writes the server that answers to the file, for the next time. If that fails, the
// cluster is asked for again then.
func (c *cluster) note(known boltstore.State, by listing.Server, sure bool) {
	if !sure {
		by = listing.Server{Address: by.Address}
	}
	news := func(told, known string) bool { return told != "" && told != known }
	if !by.Other && !news(by.Address, known.Server) && !news(by.ClusterUID, known.ClusterUID) &&
		!news(by.FlowSchemaUID, known.FlowSchemaUID) && !news(by.CA, known.ServerCA) {
		return
	}
	if err := c.store.SetServer(by); err != nil {
		c.log.V(1).Info("It could not be noted which server answers", "source", c.store.Source().String(), "err", err)
	}
}

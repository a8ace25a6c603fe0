package reflector

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/internal/listing"
)

// cluster finds out which cluster answers, once after each time that the link was broken,
// before any of its answers is believed. The UID of kube-system identifies it or, where that
// may not be read, address and CA.
type cluster struct {
	server   string // its address; "": the client's requests cannot be seen
	requests *requests
	queue    *fifo.Queue
	store    *boltstore.Claimed
	log      klog.Logger

	mu      sync.Mutex
	origin  *origin   // of the last question or list
	broken  time.Time // when the link last was; an earlier answer will not do
	checked bool
	id      finding
}

// finding is the result.
type finding struct {
	by    listing.Server // what the server has told
	conn  string         // connection over which it has
	other bool           // it is not the file's cluster
	// sure: it is the same cluster, or the file knows no UID. Otherwise nothing shows
	// that it is another one, but what it says about itself is not noted.
	sure bool
}

var errNoCluster = errors.New("reflector: the cluster that answers has no kube-system yet, so nothing shows " +
	"whether it is the same")

// otherCluster finds out whether the server is that of another cluster than the
// file's. If it is, the file's contents are removed.
func (s *Reflector) otherCluster(ctx context.Context) (bool, error) {
	c := &s.cluster
	since, due := c.due()
	if !due {
		return false, nil
	}
	known := s.store.State()
	id, err := c.identify(ctx, known, since)
	if err != nil {
		return false, s.fail(ctx, err)
	}
	if id.other && (known.Synced || known.Objects > 0) {
		err = c.empty(ctx, known, id.by) // none of its objects has been deleted
	} else {
		c.note(id)
	}
	if err != nil {
		return false, err
	}
	c.found(id)
	if id.other {
		s.link.another()
	}
	return id.other && known.Synced, nil
}

// forget: the link is broken, or may be, and another cluster may answer next.
func (c *cluster) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checked, c.broken = false, time.Now()
}

// due says whether the cluster is still to be found out, and since when.
func (c *cluster) due() (since time.Time, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken, !c.checked && c.server != ""
}

func (c *cluster) found(id finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checked, c.id = true, id
}

// is is what is known of the cluster that answers.
func (c *cluster) is() listing.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id.by
}

// trace returns a context whose requests are a question for the version, or a list.
func (c *cluster) trace(ctx context.Context) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.origin = &origin{dated: c.store.Upstream.ServerTime, conn: c.id.conn}
	return c.origin.trace(ctx)
}

// stated is the origin of the last stated version.
func (c *cluster) stated() *origin {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.origin
}

// identify asks for the UID of kube-system, unless another source has, since then.
func (c *cluster) identify(ctx context.Context, known boltstore.State, since time.Time) (finding, error) {
	told, err := c.requests.clusterUID(ctx, since)
	if err != nil {
		return finding{}, err
	}
	if told.none && known.ClusterUID != "" {
		return finding{}, errNoCluster // it is one of the first things that a server makes
	}
	by := listing.Server{Address: c.server, ClusterUID: told.uid, CA: told.ca}
	other := isOther(known, by)
	return finding{by, told.conn, other, other || told.uid != "" || known.ClusterUID == ""}, nil
}

// isOther says whether the cluster that answers is not the one that the file knows. If
// its UID may not be read, address and CA must differ: each of them alone may change in the
// life of a cluster.
func isOther(known boltstore.State, by listing.Server) bool {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	if by.ClusterUID != "" && known.ClusterUID != "" {
		return by.ClusterUID != known.ClusterUID
	}
	return differ(known.Server, by.Address) && differ(known.ServerCA, by.CA)
}

// empty removes the contents from the file: they belong to another cluster.
func (c *cluster) empty(ctx context.Context, known boltstore.State, by listing.Server) error {
	if err := c.queue.Flush(ctx); err != nil {
		return err
	}
	if err := c.store.Upstream.Empty(); err != nil {
		return err
	}
	c.note(finding{by: by, sure: true})
	c.queue.Unconfirm(true)
	c.log.Info("Another cluster answers, the cached objects are removed", "source", c.store.Source().String(),
		"server", by.Address, "clusterUID", by.ClusterUID, "ca", by.CA,
		"serverBefore", known.Server, "clusterUIDBefore", known.ClusterUID, "caBefore", known.ServerCA)
	return nil
}

// note writes the server that answers to the file, for the next time. What it does not say
// stays, unless it is another cluster.
func (c *cluster) note(id finding) {
	by := id.by
	if !id.sure {
		by = listing.Server{Address: by.Address}
	}
	err := c.store.Upstream.WriteFacts(func(f *listing.Facts) {
		if id.other {
			f.Server = listing.Server{}
		}
		f.Server.Address = cmp.Or(by.Address, f.Server.Address)
		f.Server.ClusterUID = cmp.Or(by.ClusterUID, f.Server.ClusterUID)
		f.Server.CA = cmp.Or(by.CA, f.Server.CA)
	})
	if err != nil {
		c.log.V(1).Info("It could not be noted which server answers", "source", c.store.Source().String(), "err", err)
	}
}

package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// identity says whether the link leads to the file's cluster.
type identity struct {
	want   string        // "" if it is not known
	doubts atomic.Uint64 // new connections, and requests that failed: the next may lead elsewhere

	mu     sync.Mutex
	same   uint64 // doubts when it was asked, or could not be known
	failed error
	at     time.Time // of failed
}

// sameCluster returns an error if the link leads to another cluster than the file's, or if
// that is not known yet. A server that does not show the namespace is believed.
func (l *Link) sameCluster(ctx context.Context) error {
	c := &l.cluster
	came := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.want == "" || c.same > 0 && c.same == c.doubts.Load():
		return nil
	case c.at.After(came): // who waited need not ask again
		return c.failed
	}
	err := l.askCluster(ctx)
	c.same, c.failed, c.at = 0, err, time.Now()
	if err == nil {
		c.same = c.doubts.Load()
	}
	return err
}

// askCluster asks the server which cluster it is. It needs mu.
func (l *Link) askCluster(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.to.JoinPath("/api/v1/namespaces", metav1.NamespaceSystem).String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := l.own.any.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch code := resp.StatusCode; {
	case code == http.StatusForbidden, code == http.StatusUnauthorized, code == http.StatusNotFound:
		return nil
	case code != http.StatusOK:
		return fmt.Errorf("it does not say which cluster it is: %s", resp.Status)
	}
	var namespace metav1.PartialObjectMetadata
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&namespace); err != nil {
		return fmt.Errorf("it does not say which cluster it is: %w", err)
	}
	if got := string(namespace.UID); got != l.cluster.want {
		return fmt.Errorf("it is of another cluster than the file (kube-system has UID %s, the file's %s); give the kubeconfig of the file's", got, l.cluster.want)
	}
	return nil
}

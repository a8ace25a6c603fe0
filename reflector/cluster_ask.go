package reflector

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// clusterAnswers has what the servers of one config said about their clusters.
type clusterAnswers struct {
	turnToAsk
	uids map[string]clusterAnswer // by address
}

// clusterAnswer is a server's answer about its kube-system.
type clusterAnswer struct {
	uid  string // "": the server does not say
	none bool   // kube-system is not there
	ca   string // as in origin
	conn string // over which it came
	at   time.Time
}

// clusterUID asks for the UID of the kube-system namespace, with the credentials of req,
// unless another source has, since then.
func (t *transport) clusterUID(req *http.Request, since time.Time) (k clusterAnswer, err error) {
	server, _, err := splitPath(req.URL.Path)
	if err != nil {
		return k, err
	}
	end, err := t.clusters.begin(req.Context())
	if err != nil {
		return k, err
	}
	defer end()
	host := req.URL.Host + server
	if k, ok := t.clusters.uids[host]; ok && k.at.After(since) {
		return k, nil
	}
	at := time.Now()
	if k, err = t.askClusterUID(req, server); err == nil {
		k.at = at
		t.clusters.uids[host] = k
	}
	return k, err
}

func (t *transport) askClusterUID(req *http.Request, server string) (k clusterAnswer, err error) {
	var over origin
	resp, body, err := t.fetch(over.trace(req.Context()), req, server+"/api/v1/namespaces/kube-system", "")
	if resp == nil {
		return k, err
	}
	k.ca = caOf(resp)
	k.conn = over.over()
	switch {
	case err != nil:
		return k, err
	case resp.StatusCode == http.StatusNotFound:
		k.none = true
		return k, nil
	case resp.StatusCode >= 300 && resp.StatusCode < 500 && resp.StatusCode != http.StatusRequestTimeout &&
		resp.StatusCode != http.StatusTooManyRequests:
		return k, nil // the server does not say
	case resp.StatusCode != http.StatusOK:
		return k, fmt.Errorf("reflector: ask for the cluster's identity: %w", failed(resp))
	}
	var ns metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &ns); err != nil {
		return k, fmt.Errorf("reflector: ask for the cluster's identity: %w", err)
	}
	k.uid = string(ns.UID)
	return k, nil
}

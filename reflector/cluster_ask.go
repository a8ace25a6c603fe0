package reflector

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// asked has what the servers of one config said about themselves. Sources that start
// together share an answer: it serves all that waited for it.
type asked struct {
	begun atomic.Uint64 // counts the questions
	turn  chan struct{} // to ask, and to touch uids
	uids  map[string]clusterAnswer
}

// clusterAnswer is a server's answer about its kube-system.
type clusterAnswer struct {
	uid  string // "": the server does not say
	none bool   // kube-system is not there
	ca   string // as in origin
	n    uint64 // number of the question
}

// clusterUID asks for the UID of the kube-system namespace, with the
// credentials of req.
func (t *transport) clusterUID(req *http.Request) (k clusterAnswer, err error) {
	server, _, err := splitPath(req.URL.Path)
	if err != nil {
		return k, err
	}
	before, host := t.asked.begun.Load(), req.URL.Host+server
	select {
	case t.asked.turn <- struct{}{}:
		defer func() { <-t.asked.turn }()
	case <-req.Context().Done():
		return k, req.Context().Err()
	}
	if k, ok := t.asked.uids[host]; ok && k.n > before {
		return k, nil // another source has asked
	}
	n := t.asked.begun.Add(1)
	if k, err = t.askClusterUID(req, server); err == nil {
		k.n = n
		t.asked.uids[host] = k
	}
	return k, err
}

func (t *transport) askClusterUID(req *http.Request, server string) (k clusterAnswer, err error) {
	ctx, cancel := context.WithTimeout(context.WithValue(req.Context(), probeKey{}, nil), askPatience)
	defer cancel()
	get := req.Clone(ctx)
	get.URL.Path, get.URL.RawPath, get.URL.RawQuery = server+"/api/v1/namespaces/kube-system", "", ""
	get.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
	resp, err := t.ask(get)
	if err != nil {
		return k, err
	}
	defer resp.Body.Close()
	k.ca = caOf(resp)
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return k, err
	case resp.StatusCode == http.StatusNotFound:
		k.none = true
		return k, nil
	case resp.StatusCode >= 300 && resp.StatusCode < 500 && resp.StatusCode != http.StatusRequestTimeout && resp.StatusCode != http.StatusTooManyRequests:
		return k, nil // the server does not say
	case resp.StatusCode != http.StatusOK:
		return k, fmt.Errorf("reflector: ask for the cluster's identity: %s", resp.Status)
	}
	var ns metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &ns); err != nil {
		return k, fmt.Errorf("reflector: ask for the cluster's identity: %w", err)
	}
	k.uid = string(ns.UID)
	return k, nil
}

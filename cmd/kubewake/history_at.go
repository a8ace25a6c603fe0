package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/history"
)

// moment parses --at.
func (h *historyCmd) moment(name string) (m history.Moment, err error) {
	switch {
	case h.at == "":
		return m, nil
	case name == "" || h.since != 0:
		return m, errors.New("an object as it was needs its name, and no --since (--at)")
	}
	if v, err := strconv.ParseUint(h.at, 10, 64); err == nil {
		return history.Moment{ResourceVersion: strconv.FormatUint(v, 10)}, nil
	}
	if m.Time, err = time.Parse(time.RFC3339, h.at); err != nil || m.Time.IsZero() {
		return m, fmt.Errorf("%q is neither a resourceVersion nor a time such as 2026-11-22T21:00:00Z (--at)", h.at)
	}
	return m, nil
}

// then prints an object as it was. One source answers, since the object is in one
// namespace.
func (h *historyCmd) then(ctx context.Context, r *reader, st boltstore.State, name string, m history.Moment) error {
	key := h.namespace + "/" + name
	if st.Scope == boltstore.ScopeCluster {
		key = name
	}
	q := query{source: st, key: key, at: m, secrets: h.secrets}
	err := r.asItWas(ctx, q, func(u *unstructured.Unstructured) error {
		fmt.Fprintf(h.streams.ErrOut, "%s: %s at %s, when its resourceVersion was %s%s\n", st.Source, key, m,
			u.GetResourceVersion(), unconfirmed(st, m))
		var p printers.ResourcePrinter = &printers.YAMLPrinter{}
		if h.output == "json" {
			p = &printers.JSONPrinter{}
		}
		return (&printers.OmitManagedFieldsPrinter{Delegate: p}).PrintObj(u, h.streams.Out) // as get
	})
	switch {
	case errors.Is(err, history.ErrUnknown):
		return err
	case errors.Is(err, errNotFound):
		return fmt.Errorf("%s %q was not there at %s, by the journal of %s%s", st.Source.Resource, name, m, h.db.path,
			unconfirmed(st, m))
	}
	return err
}

// unconfirmed says that a time is later than what the file knows of the server.
func unconfirmed(st boltstore.State, m history.Moment) string {
	if m.Time.IsZero() || !m.Time.After(st.Confirmed) {
		return ""
	}
	return "; the server last confirmed the file " + confirmedAgo(st)
}

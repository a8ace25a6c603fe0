package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
)

// byAPI is objects by the API of the process that has the file open, which needs no copy of the
// file and knows its own Go types. answered is false if the API does not have the source, such as
// a program's own store, or one that has lost records.
func (r *reader) byAPI(
	ctx context.Context, q query, fn func(*unstructured.Unstructured) error,
) (answered bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, q.url(), nil)
	if err != nil {
		return true, err
	}
	req.Header.Set("Accept", "application/json")
	if q.source.Source.Form == boltstore.FormMetadata {
		as := "PartialObjectMetadataList"
		if q.key != "" {
			as = "PartialObjectMetadata"
		}
		req.Header.Set("Accept", "application/json;as="+as+";v=v1;g=meta.k8s.io")
	}
	src := q.source.Source
	o := apifile.Options{Cluster: src.Cluster, Source: src.ID(), Secrets: true, WarnAfter: -1}
	resp, err := r.owner.API(req, o, false)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound && q.key != "" && isMissing(resp.Body):
		return true, fmt.Errorf("%s %q: %w", src, q.key, errNotFound)
	case resp.StatusCode != http.StatusOK:
		return false, nil
	}
	each := func(dec *json.Decoder) error {
		var text json.RawMessage
		u := &unstructured.Unstructured{}
		err := dec.Decode(&text)
		if err == nil {
			err = utiljson.Unmarshal(text, &u.Object)
		}
		if err == nil {
			if src.Form == boltstore.FormMetadata {
				u.SetKind("") // unstructured sets the source's
			}
			u, err = q.unstructured(u)
		}
		if err != nil {
			return err
		}
		return fn(u)
	}
	dec := json.NewDecoder(resp.Body)
	if q.key != "" {
		return true, each(dec)
	}
	return true, items(dec, each)
}

// isMissing says whether an answer is that an object is not there. The API says so with the
// object's name. Another answer of that code is about the path, which may name a source that
// the API does not serve.
func isMissing(body io.Reader) bool {
	var st metav1.Status
	err := json.NewDecoder(body).Decode(&st)
	return err == nil && st.Reason == metav1.StatusReasonNotFound && st.Details != nil && st.Details.Name != ""
}

// items calls each for the items of a list.
func items(dec *json.Decoder, each func(*json.Decoder) error) error {
	for tok, err := dec.Token(); tok != "items"; tok, err = dec.Token() {
		if err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil { // [
		return err
	}
	for dec.More() {
		if err := each(dec); err != nil {
			return err
		}
	}
	for { // the end of a list that was broken off is missing
		if _, err := dec.Token(); err == io.EOF { //nolint:errorlint // what a Decoder returns
			return nil
		} else if err != nil {
			return err
		}
	}
}

// url is the query in the API.
func (q *query) url() string {
	src := q.source.Source
	namespace, name, ok := strings.Cut(q.key, "/")
	if !ok {
		namespace, name = "", q.key
	}
	u := url.URL{Scheme: "http", Host: "file", Path: pathOf(src, cmp.Or(namespace, src.Namespace, q.namespace), name)}
	if name == "" {
		u.RawQuery = url.Values{"labelSelector": {src.LabelSelector}, "fieldSelector": {src.FieldSelector}}.Encode()
	}
	return u.String()
}

// pathOf is the path of a source's object in the API, or of a list if name is empty.
func pathOf(src boltstore.Source, namespace, name string) string {
	parts := []string{"/apis", src.Group, src.Version}
	if src.Group == "" {
		parts = []string{"/api", src.Version}
	}
	if namespace != "" {
		parts = append(parts, "namespaces", namespace)
	}
	return path.Join(append(parts, src.Resource, name)...)
}

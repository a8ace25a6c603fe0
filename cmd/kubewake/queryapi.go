package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/kubeapi"
)

// objects calls fn with each object that the query selects, in the order of the file, until fn
// fails. They come from the API on the file, of this process or of the one that has it open, and
// are fn's to keep and change.
func (r *reader) objects(ctx context.Context, q query, fn func(*unstructured.Unstructured) error) error {
	src := q.source.Source
	list := url.URL{Scheme: "http", Host: "file", Path: pathOf(src, cmp.Or(src.Namespace, q.namespace)),
		RawQuery: url.Values{"labelSelector": {src.LabelSelector}, "fieldSelector": {src.FieldSelector}}.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, list.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", kubeapi.MediaJSON)
	if src.Form == boltstore.FormMetadata {
		req.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
	}
	o := apifile.Options{Cluster: src.Cluster, Source: src.ID(), Secrets: true, WarnAfter: -1}
	var resp *http.Response
	if r.owner != nil {
		resp, err = r.owner.API(req, o, false)
	} else {
		resp, err = (&inProcess{ctx, apifile.New(r.db, o)}).RoundTrip(req)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var st metav1.Status
		if err := json.NewDecoder(resp.Body).Decode(&st); err != nil {
			return fmt.Errorf("%s is not served: %s", src, http.StatusText(resp.StatusCode))
		}
		return fmt.Errorf("%s: %s", src, st.Message)
	}
	err = items(json.NewDecoder(resp.Body), func(text json.RawMessage) error {
		u := &unstructured.Unstructured{}
		err := utiljson.Unmarshal(text, &u.Object)
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
	})
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("the list of %s broke off; kubewake check says whether the file is sound: %w", src, err)
	}
	return err
}

// items calls each for the items of a list.
func items(dec *json.Decoder, each func(json.RawMessage) error) error {
	for tok, err := dec.Token(); tok != "items"; tok, err = dec.Token() {
		if err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil { // [
		return err
	}
	for dec.More() {
		var text json.RawMessage
		err := dec.Decode(&text)
		if err == nil {
			err = each(text)
		}
		if err != nil {
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

// pathOf is the path of a source's list in the API.
func pathOf(src boltstore.Source, namespace string) string {
	parts := []string{"/apis", src.Group, src.Version}
	if src.Group == "" {
		parts = []string{"/api", src.Version}
	}
	if namespace != "" {
		parts = append(parts, "namespaces", namespace)
	}
	return path.Join(append(parts, src.Resource)...)
}

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubeapi"
	"github.com/kubewake/kubewake/internal/serve"
)

// parts answers from a file. A list that no source has whole is answered with what the
// sources have of it, and errOut says so: a person is not misled as an informer would be.
type parts struct {
	*serve.Shared
	sources []boltstore.State // of the cluster that is served
	errOut  io.Writer
}

// ServeHTTP implements http.Handler.
func (f *parts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	by, note := f.of(r)
	if note == "" {
		f.ServeFile(w, r, nil)
		return
	}
	fmt.Fprintln(f.errOut, note)
	var list map[string]any
	for _, st := range by {
		resp, err := f.part(r, st.Source)
		var body []byte
		var part map[string]any
		if err == nil {
			body, err = io.ReadAll(resp.Body)
			err = errors.Join(err, resp.Body.Close(), utiljson.Unmarshal(body, &part))
		}
		switch {
		case err != nil:
			kubeapi.WriteStatus(w, apierrors.NewInternalError(err))
			return
		case resp.StatusCode != http.StatusOK:
			kubeapi.WriteJSON(w, resp.StatusCode, body)
			return
		case list == nil:
			list = part
			maps.Copy(w.Header(), resp.Header)
			continue
		}
		for _, field := range []string{"items", "rows"} {
			if more, ok := part[field].([]any); ok {
				before, _ := list[field].([]any)
				list[field] = append(before, more...)
			}
		}
	}
	_ = json.NewEncoder(w).Encode(list) // the client left
}

// of returns the sources that have a part of a list, and says what it lacks.
func (f *parts) of(r *http.Request) (by []boltstore.State, note string) {
	p := kubeapi.ParsePath(r.URL.Path)
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil || p.Verb(r.Method, r.URL.Query()) != "list" || r.URL.Query().Get("fieldSelector") != "" {
		return nil, ""
	}
	sources := slices.DeleteFunc(slices.Clone(f.sources), func(st boltstore.State) bool {
		return st.Source.Group != p.GroupVersion.Group || st.Source.Version != p.GroupVersion.Version ||
			st.Source.Resource != p.Resource
	})
	by, note, err = ask(p.Namespace, false, selector).answer(sources)
	if err != nil {
		return nil, ""
	}
	return by, note
}

// part is the answer from what one source has of a list.
func (f *parts) part(r *http.Request, src boltstore.Source) (*http.Response, error) {
	both := func(a, b string) string { return strings.Trim(a+","+b, ",") }
	of, q := r.Clone(r.Context()), r.URL.Query()
	q.Set("labelSelector", both(q.Get("labelSelector"), src.LabelSelector))
	q.Set("fieldSelector", both(q.Get("fieldSelector"), src.FieldSelector))
	namespace := cmp.Or(src.Namespace, kubeapi.ParsePath(r.URL.Path).Namespace)
	of.URL = &url.URL{Path: pathOf(src, namespace), RawQuery: q.Encode()}
	if !strings.Contains(r.Header.Get("Accept"), "as=Table") {
		of.Header.Set("Accept", kubeapi.MediaJSON)
	}
	return (&inProcess{r.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.ServeFile(w, r, nil)
	})}).RoundTrip(of)
}

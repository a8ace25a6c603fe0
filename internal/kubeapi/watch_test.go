package kubeapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// TestWatchThatEndsAmidABatch: a client gets the changes before the end of a watch, however it
// ends.
func TestWatchThatEndsAmidABatch(t *testing.T) {
	for name, end := range map[string]error{"in order": ErrWatchOver, "expired": ErrExpired,
		"broken off": http.ErrAbortHandler} {
		w := httptest.NewRecorder()
		func() {
			defer func() { _ = recover() }() // as net/http does
			h := &Handler{Storage: ending{configMapType(), end}, Clock: clock.RealClock{}}
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/configmaps?watch=1&resourceVersion=1", nil))
		}()
		if body := w.Body.String(); !strings.HasPrefix(body, `{"type":"ADDED"`) || !w.Flushed {
			t.Errorf("%s: %q", name, body)
		}
	}
}

// TestWatchWhoseTimeHasPassed: a watch with a negative timeout ends without an event, in order.
func TestWatchWhoseTimeHasPassed(t *testing.T) {
	for _, query := range []string{"", "&resourceVersion=0", "&resourceVersion=1"} {
		w := httptest.NewRecorder()
		h := &Handler{Storage: ending{configMapType(), ErrWatchOver}, Clock: clock.RealClock{}}
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/configmaps?watch=1&timeoutSeconds=-1"+query, nil))
		if w.Code != http.StatusOK || w.Body.Len() > 0 || !w.Flushed {
			t.Errorf("%q: %d %q", query, w.Code, w.Body)
		}
	}
}

// TestWatchAsListOfMetadata: an event has no list, so a watch that asks for one is refused.
func TestWatchAsListOfMetadata(t *testing.T) {
	for _, media := range []string{MediaJSON, MediaProto} {
		w := httptest.NewRecorder()
		h := &Handler{Storage: ending{configMapType(), ErrWatchOver}, Clock: clock.RealClock{}}
		r := httptest.NewRequest(http.MethodGet, "/api/v1/configmaps?watch=1&resourceVersion=1", nil)
		r.Header.Set("Accept", media+";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
		h.ServeHTTP(w, r)
		if w.Code != http.StatusNotAcceptable {
			t.Errorf("%s: %d %q", media, w.Code, w.Body)
		}
	}
}

func configMapType() *Type {
	return NewType(Resource{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Plural: "configmaps",
		Namespaced: true})
}

// ending is a Storage whose watch ends after one change.
type ending struct {
	t   *Type
	end error
}

func (s ending) Types() []*Type { return []*Type{s.t} }

func (s ending) Get(context.Context, *Type, string, string, uint64) (*Object, error) { return nil, nil }

func (s ending) List(context.Context, *Type, Query) (*Page, error) { return &Page{}, nil }

func (s ending) Watch(context.Context, *Type, WatchQuery) (Watch, error) { return s, nil }

func (s ending) Start() Start { return Start{Version: 1} }

func (s ending) Done() <-chan struct{} { return nil }

func (s ending) Close() {}

func (s ending) Next(context.Context) (Batch, error) {
	return Batch{Each: func(yield func(*Change, error) bool) {
		o := s.t.Of(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", ResourceVersion: "2"}},
			2)
		if yield(&Change{Version: 2, Cur: o}, nil) {
			yield(nil, s.end)
		}
	}}, nil
}

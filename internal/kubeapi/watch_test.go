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
	for name, end := range map[string]error{"in order": ErrWatchOver, "expired": ErrExpired, "broken off": http.ErrAbortHandler} {
		w := httptest.NewRecorder()
		func() {
			defer func() { _ = recover() }() // as net/http does
			h := &Handler{Storage: ending{NewType(Resource{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Plural: "configmaps", Namespaced: true}), end}, Clock: clock.RealClock{}}
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/configmaps?watch=1&resourceVersion=1", nil))
		}()
		if body := w.Body.String(); !strings.HasPrefix(body, `{"type":"ADDED"`) || !w.Flushed {
			t.Errorf("%s: %q", name, body)
		}
	}
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
		o := s.t.Of(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", ResourceVersion: "2"}}, 2)
		if yield(&Change{Version: 2, Cur: o}, nil) {
			yield(nil, s.end)
		}
	}}, nil
}

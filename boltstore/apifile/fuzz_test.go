package apifile

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
)

// FuzzAPI sends any method, path, query and Accept header. Each gets an answer of the
// API, without Secrets, and leaves the file as it is.
func FuzzAPI(f *testing.F) {
	db := filetest.Open(f, boltstore.Options{})
	s := filetest.Claim(f, db, source1("configmaps", "", ""), &corev1.ConfigMap{})
	filetest.Relist(f, s, "10", configMap("a", "x", 1, "l=1"), configMap("b", "y", 2))
	filetest.Relist(f, s, "20", configMap("a", "x", 11, "l=2"), configMap("b", "z", 12))
	secret := &corev1.Secret{ObjectMeta: meta("a", "s", 2), Data: map[string][]byte{"k": []byte("hunter2")}}
	filetest.Relist(f, filetest.Claim(f, db, source1("secrets", "", ""), &corev1.Secret{}), "10", secret)
	h := New(db, Options{})
	const list = "/api/v1/configmaps"
	token := func(text string) string { return "continue=" + base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for _, query := range []string{"", "limit=1", "limit=-1&resourceVersion=0", "watch=true&resourceVersion=10",
		"watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		"resourceVersionMatch=Exact&resourceVersion=10", "labelSelector=l%3D1&fieldSelector=metadata.name%3Dx",
		"fieldSelector=spec.x%3D1", "timeoutSeconds=1&watch=true&resourceVersion=99",
		token(`{"v":"meta.k8s.io/v1","rv":10,"start":"a/x\u0000"}`),
		token(`{"v":"meta.k8s.io/v1","rv":-1,"start":"a"}`),
		token(`{"v":"meta.k8s.io/v1","rv":10,"start":"/../x"}`)} {
		f.Add("GET", list, query, "application/json")
	}
	f.Add("GET", "/api/v1/namespaces/a/secrets/s", "",
		"application/vnd.kubernetes.protobuf,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	f.Add("GET", list, "includeObject=Object&limit=1", asTable)
	f.Add("GET", list, "includeObject=None&watch=true&resourceVersion=10", asTable)
	f.Add("GET", "/apis", "", mediaDiscovery)
	f.Add("GET", "/apis//v1/x", "", "*/*;q=;")
	f.Add("POST", "/api/v1/namespaces/a/configmaps", "fieldManager=x", "")
	f.Add("DELETE", list, "limit=1", "")
	before := db.Size()
	f.Fuzz(func(t *testing.T, method, path, query, accept string) {
		r, err := http.NewRequest(method, "http://x/", nil)
		if err != nil {
			t.Skip("not a request that a server passes on")
		}
		r.URL = &url.URL{Path: path, RawQuery: query}
		r.Header.Set("Accept", accept)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // of a watch
		defer cancel()
		w := httptest.NewRecorder()
		func() {
			defer func() {
				if r := recover(); r != nil && (r != http.ErrAbortHandler || ctx.Err() == nil) {
					panic(r)
				}
			}()
			h.ServeHTTP(w, r.WithContext(ctx))
		}()
		body := w.Body.String()
		if strings.Contains(body, "hunter2") || strings.Contains(body, "aHVudGVy") {
			t.Fatalf("a secret: %q", body)
		}
		if w.Code == http.StatusInternalServerError && !strings.Contains(body, "resourceVersion") && ctx.Err() == nil {
			t.Fatalf("%s %q %q: %d %q", method, path, query, w.Code, body)
		}
		if db.Err() != nil || db.Size() != before {
			t.Fatal(db.Err(), db.Size())
		}
	})
}

const mediaDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

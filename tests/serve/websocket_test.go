package serve

import (
	"bufio"
	"crypto/tls"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// webSocket: a watch over WebSocket is the same at the server and at the file, also offline, and
// so is what is refused.
func (w *world) webSocket(t *testing.T) {
	file, err := clientcmd.BuildConfigFromFlags("", filepath.Join(w.dir, "f.db.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"small", "large"} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "socket-" + name},
			Data: map[string]string{"k": "é"}}
		if name == "large" {
			cm.Data["k"] = strings.Repeat("é", 100<<10)
		}
		if _, err := w.direct.CoreV1().ConfigMaps("a").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := w.direct.CoreV1().ConfigMaps("a").List(t.Context(), metav1.ListOptions{LabelSelector: "none"})
	if err != nil {
		t.Fatal(err)
	}
	events := func(cfg *rest.Config, name string) string {
		t.Helper()
		query := "resourceVersion=" + list.ResourceVersion + "&fieldSelector=metadata.name=" + name
		ws, err := websocket.DialConfig(socketConfig(t, cfg, query))
		if err != nil {
			t.Fatal(err)
		}
		defer ws.Close()
		if err := ws.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		in, all := bufio.NewReader(ws), ""
		for range 2 {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			all += line
		}
		return all
	}
	for _, name := range []string{"socket-small", "socket-large"} {
		cm, err := w.direct.CoreV1().ConfigMaps("a").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cm.Labels = map[string]string{"changed": "yes"}
		if _, err := w.direct.CoreV1().ConfigMaps("a").Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := w.direct.CoreV1().ConfigMaps("a").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	reads := w.client(file)
	w.until("the file has the changes", func() bool {
		_, err := reads.CoreV1().ConfigMaps("a").Get(t.Context(), "socket-large", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	same := func(when string) {
		t.Helper()
		for _, name := range []string{"socket-small", "socket-large"} {
			got, want := events(file, name), events(w.s.Config(), name)
			if got != want || strings.Count(want, `"type":"MODIFIED"`) != 1 ||
				strings.Count(want, `"type":"DELETED"`) != 1 {
				t.Errorf("%s, %s: %d bytes %.400s, at the server %d bytes %.400s", when, name, len(got), got,
					len(want), want)
			}
		}
	}
	same("with the link")
	refused := func(when string) {
		t.Helper()
		for what, change := range map[string]func(http.Header){
			"no origin":     func(h http.Header) { h.Del("Origin") },
			"no key":        func(h http.Header) { h.Del("Sec-Websocket-Key") },
			"a version":     func(h http.Header) { h.Set("Sec-Websocket-Version", "12") },
			"two protocols": func(h http.Header) { h.Set("Sec-Websocket-Protocol", "a, b") },
			"a bad query":   func(h http.Header) { h.Set("Query", "&labelSelector=%28") },
		} {
			if got, want := answered(t, file, change), answered(t, w.s.Config(), change); got != want {
				t.Errorf("%s, %s: %d, at the server %d", when, what, got, want)
			}
		}
	}
	refused("with the link")
	w.link.Lose()
	defer w.link.Restore()
	same("offline")
	refused("offline")
}

// socketConfig is for a watch of config maps.
func socketConfig(t *testing.T, cfg *rest.Config, query string) *websocket.Config {
	t.Helper()
	to, err := url.Parse(cfg.Host + "/api/v1/namespaces/a/configmaps?watch=true&" + query)
	if err != nil {
		t.Fatal(err)
	}
	to.Scheme = "wss"
	c, err := websocket.NewConfig(to.String(), cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	c.TlsConfig = socketTLS(t, cfg)
	if cfg.BearerToken != "" {
		c.Header.Set("Authorization", "Bearer "+cfg.BearerToken)
	}
	return c
}

func socketTLS(t *testing.T, cfg *rest.Config) *tls.Config {
	t.Helper()
	c, err := rest.TLSConfigFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.NextProtos = []string{"http/1.1"}
	return c
}

// answered is the code of the answer to a watch over WebSocket whose header was changed.
func answered(t *testing.T, cfg *rest.Config, change func(http.Header)) int {
	t.Helper()
	h := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Origin": {"https://x"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
	change(h)
	if cfg.BearerToken != "" {
		h.Set("Authorization", "Bearer "+cfg.BearerToken)
	}
	query := h.Get("Query")
	h.Del("Query")
	to := cfg.Host + "/api/v1/namespaces/a/configmaps?watch=true" + query
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = h
	tr := &http.Transport{TLSClientConfig: socketTLS(t, cfg)}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

package cli

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	stdlog "log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/tests/apiserver"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// TestServes asks a mirror for its health, readiness and metrics, with and
// without a server, and ends it with SIGTERM.
func TestServes(t *testing.T) {
	sim := kubesim.New(kubesim.Options{Resources: resources()})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	if err := fill(sim); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := api.NewConfig()
	c.Clusters["sim"] = &api.Cluster{Server: sim.URL()}
	c.Contexts["sim"] = &api.Context{Cluster: "sim"}
	c.CurrentContext = "sim"
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*c, kubeconfig); err != nil {
		t.Fatal(err)
	}
	for _, life := range []struct {
		offline bool
		ready   int
		why     string
		status  string
		metrics []string
	}{
		{false, 200, "ok", `"lastRelist": "first sync"`, []string{
			`kubewake_source_objects{source="pods/v1"} 3`, `kubewake_source_phase{phase="live",source="pods/v1"} 1`,
			`kubewake_source_relists_total{reason="first sync",source="pods/v1"} 1`,
			`kubewake_source_told_total{source="pods/v1",type="added"} 3`,
			`kubewake_source_in_memory{source="pods/v1"} 0`, `kubewake_source_memory_bytes{source="pods/v1"} 0`,
			`kubewake_source_degraded{source="pods/v1"} 0`, `kubewake_source_failed_total{source="pods/v1"} 0`,
			`kubewake_handler_lag_entries{handler="",source="pods/v1"} 0`, `kubewake_source_synced{source="pods/v1"} 1`,
			"kubewake_commit_duration_seconds_count ", "kubewake_commit_failing 0", "kubewake_file_moved 0",
			"kubewake_file_bytes ", "kubewake_requests_total ", "kubewake_response_bytes_total ",
		}},
		{true, 503, "pods/v1 has not synced: offline (", `"phase": "offline"`, []string{
			`kubewake_source_objects{source="pods/v1"} 3`, `kubewake_source_phase{phase="offline",source="pods/v1"} 1`,
			`kubewake_source_told_total{source="pods/v1",type="added"} 3`,
			`kubewake_source_age_seconds{source="pods/v1"}`,
		}},
	} {
		if err := sim.RefuseConnections(life.offline); err != nil {
			t.Fatal(err)
		}
		addr := apiserver.FreeAddress(t)
		cmd := exec.Command(kubewake, "mirror", "pods", "-A", "--db", filepath.Join(dir, "f.db"), "--kubeconfig",
			kubeconfig, "--http", addr)
		cmd.Env = append(os.Environ(), "HOME="+dir)
		var log buffer
		cmd.Stderr = &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		for _, m := range life.metrics {
			await(t, "http://"+addr+"/metrics", 200, m, &log)
		}
		await(t, "http://"+addr+"/readyz", life.ready, life.why, &log)
		await(t, "http://"+addr+"/healthz", 200, "ok", &log)
		await(t, "http://"+addr+"/status", 200, life.status, &log)
		if path := filepath.Join(dir, "f.db"); life.offline { // and the file is moved away, and back
			if err := os.Rename(path, path+".away"); err != nil {
				t.Fatal(err)
			}
			await(t, "http://"+addr+"/healthz", 503, "no longer at its path", &log)
			await(t, "http://"+addr+"/metrics", 200, "kubewake_file_moved 1", &log)
			await(t, "http://"+addr+"/metrics", 200, "kubewake_commit_failing 0", &log)
			if err := os.Rename(path+".away", path); err != nil {
				t.Fatal(err)
			}
			await(t, "http://"+addr+"/healthz", 200, "ok", &log)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("SIGTERM: %v\n%s", err, log.String())
		}
	}
	for _, r := range sim.Requests() {
		if !strings.HasPrefix(r.UserAgent, "kubewake/") {
			t.Errorf("%s %s was sent by %q", r.Verb, r.Path, r.UserAgent)
		}
	}
}

// TestDamagedMirror: a mirror that meets damage in its open file ends with an error. Once it is
// started again, what can be read is saved, and the rest is listed.
func TestDamagedMirror(t *testing.T) {
	sim := kubesim.New(kubesim.Options{Resources: resources()})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	if err := fill(sim); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	db := filepath.Join(dir, "f.db")
	for life := range 2 {
		addr := apiserver.FreeAddress(t)
		cmd := exec.Command(kubewake, "mirror", "pods", "-A", "--db", db, "--server", sim.URL(), "--http", addr)
		cmd.Env = append(os.Environ(), "HOME="+dir)
		var log buffer
		cmd.Stderr = &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		await(t, "http://"+addr+"/readyz", 200, "ok", &log)
		if life == 0 {
			b, err := os.ReadFile(db)
			if err != nil {
				t.Fatal(err)
			}
			copy(b[2*os.Getpagesize():], bytes.Repeat([]byte("no page of bbolt's, by any means"), len(b)))
			if err := os.WriteFile(db, b, 0); err != nil {
				t.Fatal(err)
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "another"}}
			if err := sim.Create(pod); err != nil { // it has to store that
				t.Fatal(err)
			}
		} else if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); (err == nil) != (life == 1) || life == 0 &&
			!strings.Contains(log.String(), "start the program again") {
			t.Fatalf("life %d: %v\n%s", life, err, log.String())
		}
	}
	if aside, err := filepath.Glob(db + ".corrupt-*"); len(aside) != 1 {
		t.Errorf("set aside: %q %v", aside, err)
	}
}

// TestQuietWake: types that the file knows are not looked up again. If nothing has
// changed, a wake costs each of them a question, answered in a few hundred bytes, and a
// watch, and all of them together one question for the cluster, over one connection. That
// takes HTTP/2, which the API server speaks and the simulator does not.
func TestQuietWake(t *testing.T) {
	sim := kubesim.New(kubesim.Options{Resources: resources()})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	if err := fill(sim); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	to, err := url.Parse(sim.URL())
	if err != nil {
		t.Fatal(err)
	}
	var conns atomic.Int64
	front := httptest.NewUnstartedServer(&httputil.ReverseProxy{FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, ErrorLog: stdlog.New(io.Discard, "", 0)})
	front.EnableHTTP2 = true
	front.Config.ErrorLog = stdlog.New(io.Discard, "", 0)
	front.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			conns.Add(1)
		}
	}
	front.StartTLS()
	t.Cleanup(front.Close)
	c := api.NewConfig()
	c.Clusters["sim"] = &api.Cluster{Server: front.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})}
	c.Contexts["sim"] = &api.Context{Cluster: "sim"}
	c.CurrentContext = "sim"
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*c, kubeconfig); err != nil {
		t.Fatal(err)
	}
	for life := range 2 {
		sim.ResetRequests()
		conns.Store(0)
		addr := apiserver.FreeAddress(t)
		cmd := exec.Command(kubewake, "mirror", "pods", "configmaps", "widgets", "-A", "--db",
			filepath.Join(dir, "f.db"), "--kubeconfig", kubeconfig, "--http", addr)
		cmd.Env = append(os.Environ(), "HOME="+dir)
		var log buffer
		cmd.Stderr = &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		await(t, "http://"+addr+"/readyz", 200, "ok", &log)
		tick := time.NewTicker(10 * time.Millisecond)
		for end := time.Now().Add(time.Minute); life == 1 && len(sim.Requests()) < 7 && time.Now().Before(end); {
			<-tick.C // a list has made it ready, and the last watch follows
		}
		tick.Stop()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("SIGTERM: %v\n%s", err, log.String())
		}
		if life == 0 {
			continue
		}
		sent, bytes := map[string]int{}, int64(0)
		for _, r := range sim.Requests() {
			sent[r.Verb+" "+r.Resource+" "+r.Query.Get("limit")]++
			bytes += r.BodyBytes
		}
		want := map[string]int{"get namespaces ": 1} // kube-system's UID says which cluster it is
		for typ, objects := range map[string]int{"pods": 3, "configmaps": 1, "widgets.example.com": 1} {
			// A list of few objects is the question for the server's version. It leaves room for 8 more.
			want[fmt.Sprint("list ", typ, " ", objects+8)], want["watch "+typ+" "] = 1, 1
		}
		if !maps.Equal(sent, want) || bytes > 1100 || conns.Load() != 1 {
			t.Errorf("a wake sent %v over %d connections and was sent %d bytes", sent, conns.Load(), bytes)
		}
	}
}

// await asks until the answer is as expected.
func await(t *testing.T, url string, code int, body string, log *buffer) {
	t.Helper()
	deadline := time.After(time.Minute)
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		got := ""
		resp, err := http.Get(url)
		if err == nil {
			b, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			got = fmt.Sprint(resp.StatusCode, " ", string(b))
			if resp.StatusCode == code && strings.Contains(string(b), body) {
				return
			}
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: want %d and %q, got %v %s\n%s", url, code, body, err, got, log.String())
		}
	}
}

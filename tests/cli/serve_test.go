package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// serves runs kubewake serve, or mirror --serve, until it serves.
func serves(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("serving cannot be negated")
	}
	ready := []string{"serving f.db at https"}
	if args[0] == "mirror" { // it serves beside what it keeps
		ready = append(ready, ": live at")
	}
	l := launch(ts, args...)
	l.until("serving", func(log string) bool {
		return !slices.ContainsFunc(ready, func(line string) bool { return !strings.Contains(log, line) })
	})
	must(ts, os.WriteFile(ts.MkAbs("serve.log"), []byte(l.log.String()), 0o600))
	end := sync.OnceFunc(l.end)
	servers.Store(ts.Getenv("WORK"), end)
	ts.Defer(end)
}

var servers sync.Map // what ends the last one, by folder of the script

// served ends the process that serves has started.
func served(ts *testscript.TestScript, _ bool, _ []string) {
	end, ok := servers.Load(ts.Getenv("WORK"))
	if !ok {
		ts.Fatalf("nothing is served")
	}
	end.(func())()
}

// asked sends a request with a kubeconfig, or over a socket, and writes the answer's code and
// body to api.out.
func asked(ts *testscript.TestScript, _ bool, args []string) {
	kubeconfig, method, path := args[0], args[1], args[2]
	body := ""
	if len(args) > 3 {
		body = args[3]
	}
	cfg := &rest.Config{Host: "http://socket",
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", ts.MkAbs(kubeconfig))
		}, DisableKeepAlives: true}}
	if filepath.Ext(kubeconfig) != ".sock" {
		var err error
		cfg, err = clientcmd.BuildConfigFromFlags("", ts.MkAbs(kubeconfig))
		must(ts, err)
	}
	client, err := rest.HTTPClientFor(cfg)
	must(ts, err)
	req, err := http.NewRequest(method, cfg.Host+path, strings.NewReader(body))
	must(ts, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	must(ts, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(ts, err)
	must(ts, os.WriteFile(ts.MkAbs("api.out"),
		fmt.Appendf(nil, "%d %s\n%s", resp.StatusCode, resp.Header.Get("Warning"), b), 0o600))
}

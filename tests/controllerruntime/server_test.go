package controllerruntime

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kubewake/kubewake/internal/waittest"
	"github.com/kubewake/kubewake/tests/apiserver"
)

// The test binary is the program that is killed, too.
func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	if path := os.Getenv(envFile); path != "" {
		if err := operate(path, os.Getenv(envKubeconfig)); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if shared.server != nil {
		if err := shared.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// shared is one server for all tests, which use namespaces of their own.
var shared struct {
	once   sync.Once
	server *apiserver.Server
	err    error
}

func server(t *testing.T) *apiserver.Server {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real kube-apiserver: skipped in short mode")
	}
	shared.once.Do(func() {
		shared.server, shared.err = apiserver.Run(context.Background(), apiserver.Options{NoAudit: true})
		if shared.err == nil {
			shared.err = shared.server.InstallWidgets(context.Background())
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

var eventually = waittest.Eventually

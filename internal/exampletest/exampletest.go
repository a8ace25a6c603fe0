// Package exampletest gives the examples of the documentation a cluster and a folder. It
// panics where a test would fail.
package exampletest

import (
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// Cluster is a server on this machine, and a temporary folder.
type Cluster struct {
	sim *kubesim.Server
	dir string
}

// Start starts a server that has these config maps in namespace web.
func Start(configMaps ...string) *Cluster {
	dir, err := os.MkdirTemp("", "example-")
	must(err)
	c := &Cluster{kubesim.New(kubesim.Options{}), dir}
	_, err = c.sim.Start()
	must(err)
	for _, name := range configMaps {
		c.Create(name)
	}
	return c
}

// Config leads to the server.
func (c *Cluster) Config() *rest.Config { return c.sim.RESTConfig() }

// Path is the path of a file.
func (c *Cluster) Path() string { return filepath.Join(c.dir, "cache.db") }

// Create makes a config map.
func (c *Cluster) Create(name string) { must(c.sim.Create(configMap(name))) }

// Delete deletes a config map.
func (c *Cluster) Delete(name string) { must(c.sim.Delete(configMap(name))) }

// End removes everything.
func (c *Cluster) End() {
	c.sim.Close()
	must(os.RemoveAll(c.dir))
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name}}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

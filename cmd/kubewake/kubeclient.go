package main

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/serve"
)

// kubeClient gives kubectl's commands the file in place of a server. It opens the file
// when it is first used, through its owner's socket if there is one.
type kubeClient struct {
	streams   genericiooptions.IOStreams
	db        dbFile
	namespace string
	secrets   bool
	hides     func() func(*unstructured.Unstructured) // what Secrets do not show; nil, or one that returns nil: all
	warnings  rest.WarningHandler
	names     bool // are all that is read of the objects in lists

	ctx    context.Context // of the command
	once   sync.Once
	config *rest.Config
	// sources are the file's, of the cluster that is served.
	sources []boltstore.State
	err     error
	close   func() error

	discover  sync.Once
	discovery discovery.CachedDiscoveryInterface
	failed    error
}

var _ genericclioptions.RESTClientGetter = &kubeClient{}

// open makes the config. The handler is the one that serve has.
func (c *kubeClient) open() {
	c.close = func() error { return nil }
	cluster, sources, err := c.db.served()
	c.sources = sources
	if err != nil {
		c.err = err
		return
	}
	file := serve.NewShared(c.db.path, c.db.open, apifile.Options{
		Cluster: cluster, Secrets: c.secrets, WarnAfter: -1, // aged says it
		Logger: loggerTo(c.streams.ErrOut),
	})
	c.close = file.Close
	if c.err = file.Ready(); c.err != nil {
		return
	}
	handler := dryRun(&parts{file, sources, c.streams.ErrOut})
	if c.hides != nil {
		if hide := c.hides(); hide != nil {
			handler = hideSecrets(handler, hide)
		}
	}
	var transport http.RoundTripper = &inProcess{c.ctx, handler}
	if c.names {
		transport = names{transport, sources}
	}
	c.config = &rest.Config{
		Host: "http://file", UserAgent: "kubewake/" + version(), QPS: -1, WarningHandler: c.warnings,
		Transport: &aged{next: transport, errOut: c.streams.ErrOut, sources: sources,
			said: map[string]bool{}},
	}
}

// Close closes the file.
func (c *kubeClient) Close() error {
	if c.close == nil {
		return nil
	}
	return c.close()
}

// ToRESTConfig implements genericclioptions.RESTClientGetter.
func (c *kubeClient) ToRESTConfig() (*rest.Config, error) {
	if c.once.Do(c.open); c.err != nil {
		return nil, c.err
	}
	return rest.CopyConfig(c.config), nil
}

// ToDiscoveryClient implements genericclioptions.RESTClientGetter.
func (c *kubeClient) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	c.discover.Do(func() {
		cfg, err := c.ToRESTConfig()
		if err != nil {
			c.failed = err
			return
		}
		client, err := discovery.NewDiscoveryClientForConfig(cfg)
		if err != nil {
			c.failed = err
			return
		}
		c.discovery = inOrder{memory.NewMemCacheClient(client)}
	})
	return c.discovery, c.failed
}

// inOrder lists types in the order of their groups. The cache lists them in none, and so would
// choose any of several types with one short name.
type inOrder struct {
	discovery.CachedDiscoveryInterface
}

// ServerGroupsAndResources implements discovery.DiscoveryInterface.
func (d inOrder) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return discovery.ServerGroupsAndResources(d)
}

// ToRESTMapper implements genericclioptions.RESTClientGetter.
func (c *kubeClient) ToRESTMapper() (meta.RESTMapper, error) {
	client, err := c.ToDiscoveryClient()
	if err != nil {
		return nil, err
	}
	return restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(client), client,
		func(warning string) {
			c.warnings.HandleWarningHeader(299, "-", warning)
		}), nil
}

// ToRawKubeConfigLoader implements genericclioptions.RESTClientGetter.
func (c *kubeClient) ToRawKubeConfigLoader() clientcmd.ClientConfig { return fileConfig{c} }

// fileConfig is a kubeconfig of the file alone.
type fileConfig struct{ client *kubeClient }

func (f fileConfig) RawConfig() (clientcmdapi.Config, error) { return *clientcmdapi.NewConfig(), nil }

func (f fileConfig) ClientConfig() (*rest.Config, error) { return f.client.ToRESTConfig() }

// Namespace is the given one, or the kubeconfig's. overridden says that it was given.
func (f fileConfig) Namespace() (namespace string, overridden bool, err error) {
	return namespaceOf(f.client.namespace), f.client.namespace != "", nil
}

func (f fileConfig) ConfigAccess() clientcmd.ConfigAccess { return clientcmd.NewDefaultPathOptions() }

// agoOf is ago, by the header of an answer.
func agoOf(h http.Header) string {
	confirmed := cmp.Or(h.Get(apifile.HeaderConfirmed), time.Time{}.Format(time.RFC3339))
	at, err := time.Parse(time.RFC3339, confirmed)
	if err != nil {
		return ago(time.Time{}, nil)
	}
	var age *time.Duration
	if seconds, err := strconv.ParseInt(h.Get(apifile.HeaderAge), 10, 64); err == nil {
		d := time.Duration(seconds) * time.Second
		age = &d
	}
	return ago(at, age)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// clientConfig is the config that the flags and the kubeconfig name, without a limit on
// the rate of requests.
func clientConfig(flags *genericclioptions.ConfigFlags, wrap func(*rest.Config)) (*rest.Config, error) {
	flags.WithWrapConfigFn(func(c *rest.Config) *rest.Config {
		c.UserAgent, c.QPS = "kubewake/"+version(), -1
		wrap(c)
		return c
	})
	cfg, err := flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be used (--kubeconfig, --context): %w", err)
	}
	if madeUp(flags, cfg) {
		return nil, errors.New("no server was named and no kubeconfig found; set $KUBECONFIG, or give --kubeconfig " +
			"or --server")
	}
	return cfg, nil
}

// madeUp says whether the server is client-go's default, because neither flags nor a
// kubeconfig name one.
func madeUp(flags *genericclioptions.ConfigFlags, cfg *rest.Config) bool {
	if cfg.Host != clientcmd.ClusterDefaults.Server || *flags.APIServer != "" || os.Getenv("KUBERNETES_MASTER") != "" {
		return false
	}
	raw, err := flags.ToRawKubeConfigLoader().RawConfig()
	return err == nil && clientcmdapi.IsConfigEmpty(&raw)
}

// listWatch lists a type in protobuf, as its Go type, if client-go has one. Otherwise it
// lists unstructured objects. Their example has no kind: a custom resource may be defined
// again with another kind, and client-go drops events whose kind is not the example's.
func listWatch(cfg *rest.Config, r resource, namespace, selector string) (cache.ListerWatcher, runtime.Object, error) {
	modify := func(o *metav1.ListOptions) { o.LabelSelector = selector }
	if example, err := scheme.Scheme.New(r.gvk); err == nil {
		c, err := typedClient(cfg, r)
		if err != nil {
			return nil, nil, err
		}
		return cache.NewFilteredListWatchFromClient(c, r.gvr.Resource, namespace, modify), example, nil
	}
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	client := c.Resource(r.gvr).Namespace(namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			modify(&o)
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			modify(&o)
			return client.Watch(ctx, o)
		},
	}, &unstructured.Unstructured{}, nil
}

func typedClient(cfg *rest.Config, r resource) (*rest.RESTClient, error) {
	cfg = rest.CopyConfig(cfg)
	gv := r.gvk.GroupVersion()
	cfg.GroupVersion, cfg.APIPath = &gv, "/apis"
	if gv.Group == "" {
		cfg.APIPath = "/api"
	}
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return rest.RESTClientFor(cfg)
}

// during asks until the context ends, for questions without a context, such as those of
// client-go's discovery. The question then goes on by itself, for a minute or two if a
// server is silent.
func during[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	type answer struct {
		is  T
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		is, err := ask()
		answers <- answer{is, err}
	}()
	select {
	case a := <-answers:
		return a.is, a.err
	case <-ctx.Done():
		return *new(T), ctx.Err()
	}
}

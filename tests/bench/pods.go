package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewake/kubewake/internal/podgen"
	"github.com/kubewake/kubewake/tests/apiserver"
	"github.com/kubewake/kubewake/tests/bench/measured"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const writers = 16

// pods are the pods on the server.
type pods struct {
	client     kubernetes.Interface
	gen        *podgen.Generator
	version    string // of the server
	bytes      atomic.Int64
	mu         sync.Mutex
	names      []types.NamespacedName
	namespaces map[string]bool
	index      map[types.NamespacedName]int // of the generator
	deleted    []int
}

func newPods(ctx context.Context, server *apiserver.Server) (*pods, error) {
	cfg := server.Config()
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	v, err := client.ServerVersion()
	if err != nil {
		return nil, err
	}
	p := &pods{client: client, gen: podgen.New(1), version: v.GitVersion, namespaces: map[string]bool{},
		index: map[types.NamespacedName]int{}}
	list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, ns := range list.Items {
		p.namespaces[ns.Name] = true
	}
	return p, nil
}

// key returns the key of a pod in the middle.
func (p *pods) key() string { return p.names[len(p.names)/2].String() }

// grow creates pods until there are n and returns the mean size of their JSON.
func (p *pods) grow(ctx context.Context, n int) (mean int, err error) {
	from := len(p.names)
	for i := from; i < n; i++ {
		if err := p.namespace(ctx, p.gen.Pod(i).Namespace); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	err = parallel(n-from, func(i int) error { return p.create(ctx, from+i) })
	if err != nil {
		return 0, err
	}
	progress("%d pods created in %v", n-from, time.Since(began).Round(time.Millisecond))
	return int(p.bytes.Load()) / len(p.names), nil
}

func (p *pods) namespace(ctx context.Context, name string) error {
	if p.namespaces[name] {
		return nil
	}
	p.namespaces[name] = true
	_, err := p.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	return err
}

// create writes a pod as a cluster does: the controller its spec, the kubelet
// its status. The server makes the managedFields of it.
func (p *pods) create(ctx context.Context, i int) error {
	pod := p.gen.Pod(i)
	status := pod.Status
	pod.Status, pod.ManagedFields, pod.UID = corev1.PodStatus{}, nil, ""
	pod.Spec.Priority = nil // the server's to compute, from a class
	client := p.client.CoreV1().Pods(pod.Namespace)
	pod, err := client.Create(ctx, pod, metav1.CreateOptions{FieldManager: "kube-controller-manager"})
	if err != nil {
		return err
	}
	pod.Status = status
	if pod, err = client.UpdateStatus(ctx, pod, metav1.UpdateOptions{FieldManager: "kubelet"}); err != nil {
		return err
	}
	data, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	p.bytes.Add(int64(len(data)))
	p.mu.Lock()
	defer p.mu.Unlock()
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	p.names, p.index[name] = append(p.names, name), i
	return nil
}

// touched returns how many of n pods change marks, and how many it deletes: one in a
// hundred together, and a tenth of these are deleted.
func touched(n int) (marked, deleted int) { return n/100 - n/1000, n / 1000 }

// change marks pods with the round, and deletes others.
func (p *pods) change(ctx context.Context, round string) error {
	marked, deleted := touched(len(p.names))
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, measured.MarkAnnotation, round)
	err := parallel(marked, func(i int) error {
		name := p.names[i*100]
		_, err := p.client.CoreV1().Pods(name.Namespace).Patch(ctx, name.Name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: "bench"})
		return err
	})
	if err != nil {
		return err
	}
	gone := p.names[len(p.names)-deleted:]
	p.names = p.names[:len(p.names)-deleted]
	for _, name := range gone {
		p.deleted = append(p.deleted, p.index[name])
	}
	return parallel(deleted, func(i int) error {
		return p.client.CoreV1().Pods(gone[i].Namespace).Delete(ctx, gone[i].Name,
			metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	})
}

// restore creates the pods again that change has deleted.
func (p *pods) restore(ctx context.Context) error {
	again := p.deleted
	p.deleted = nil
	return parallel(len(again), func(i int) error { return p.create(ctx, again[i]) })
}

// writeOther takes the server's version further by an object that is no pod.
func (p *pods) writeOther(ctx context.Context) error {
	_, err := p.client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}, metav1.CreateOptions{})
	return err
}

// served waits until the server has filled its cache of pods, after a start.
func (p *pods) served(ctx context.Context) error {
	for {
		_, err := p.client.CoreV1().Pods("").List(ctx,
			metav1.ListOptions{ResourceVersion: "0", Limit: 1, FieldSelector: "metadata.name=none"})
		if !apierrors.IsTooManyRequests(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// parallel calls do for 0 to n-1, in several goroutines.
func parallel(n int, do func(i int) error) error {
	var next atomic.Int64
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for errs[w] == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				errs[w] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

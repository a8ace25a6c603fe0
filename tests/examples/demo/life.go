package main

import (
	"context"
	"encoding/json"
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/informer/factory"
	"github.com/kubewake/kubewake/reflector"
)

// What a child is told: the server, the file, "" for a stock informer, and when it was
// started.
const (
	envServer  = "KUBEWAKE_DEMO_SERVER"
	envFile    = "KUBEWAKE_DEMO_FILE"
	envStarted = "KUBEWAKE_DEMO_STARTED"
)

// life has the times of one life of a child, in milliseconds since its start, and the number
// of events that its handler was told.
type life struct {
	FirstRead, Told, Synced float64
	Added, Updated, Deleted int64

	requests, bytes int64 // as the server counts them
}

// live is a program with a factory. It prints its life as a line of JSON once it has synced,
// and ends in order with ctx.
func live(ctx context.Context, server, file string) error {
	started, err := time.Parse(time.RFC3339Nano, os.Getenv(envStarted))
	if err != nil {
		return err
	}
	since := func() float64 { return float64(time.Since(started).Microseconds()) / 1000 }
	cfg := &rest.Config{Host: server, QPS: -1}
	if file != "" {
		cfg = reflector.WrapConfig(cfg)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	f := informers.NewSharedInformerFactory(client, 0)
	if file != "" {
		if err := factory.WakeFile(f, factory.File{Path: file}, &corev1.Pod{}); err != nil {
			return err
		}
	}
	var l life
	var added, updated, deleted atomic.Int64
	var told atomic.Value
	told.Store(0.0)
	pods := f.Core().V1().Pods().Informer()
	handler, err := pods.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, initial bool) {
			if added.Add(1); initial {
				told.Store(since())
			}
		},
		UpdateFunc: func(_, _ any) { updated.Add(1) },
		DeleteFunc: func(any) { deleted.Add(1) },
	})
	if err != nil {
		return err
	}
	if len(pods.GetIndexer().ListKeys()) > 0 {
		l.FirstRead = since()
	}
	f.StartWithContext(ctx)
	defer f.Shutdown()
	if !cache.WaitFor(ctx, "", pods.HasSyncedChecker(), handler.HasSyncedChecker()) {
		return context.Cause(ctx)
	}
	if l.Synced = since(); l.FirstRead == 0 {
		l.FirstRead = l.Synced
	}
	l.Told = told.Load().(float64)
	l.Added, l.Updated, l.Deleted = added.Load(), updated.Load(), deleted.Load()
	err = json.NewEncoder(os.Stdout).Encode(l)
	<-ctx.Done()
	return err
}

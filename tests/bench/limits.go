package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/tests/bench/measured"
)

// limits measures the limits that no program that keeps the pods can beat.
func (b *bench) limits(ctx context.Context) (l measured.Limits, err error) {
	keys, values, err := b.encoded(ctx)
	if err != nil {
		return l, err
	}
	if l.Put, err = put(filepath.Join(b.dir, "limit.db"), keys, values); err != nil {
		return l, err
	}
	if l.Decode, err = decode(values); err != nil {
		return l, err
	}
	l.List, l.ListBytes, err = b.zipped(ctx)
	return l, err
}

// encoded returns the keys of all pods, and the pods in protobuf.
func (b *bench) encoded(ctx context.Context) (keys []string, values [][]byte, err error) {
	for o := (metav1.ListOptions{Limit: 500}); ; {
		page, err := b.pods.client.CoreV1().Pods("").List(ctx, o)
		if err != nil {
			return nil, nil, err
		}
		for i := range page.Items {
			data, err := page.Items[i].Marshal()
			if err != nil {
				return nil, nil, err
			}
			keys, values = append(keys, cache.MetaObjectToName(&page.Items[i]).String()), append(values, data)
		}
		if o.Continue = page.Continue; o.Continue == "" {
			return keys, values, nil
		}
	}
}

// put writes all values into a new bbolt file, a thousand in each synced transaction.
func put(path string, keys []string, values [][]byte) (took time.Duration, err error) {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close(), os.Remove(path)) }()
	began := time.Now()
	for from := 0; from < len(keys); from += 1000 {
		err := db.Update(func(tx *bbolt.Tx) error {
			objects, err := tx.CreateBucketIfNotExists([]byte("objects"))
			for i := from; i < min(from+1000, len(keys)) && err == nil; i++ {
				err = objects.Put([]byte(keys[i]), values[i])
			}
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// decode decodes all values and keeps them, as a program with its objects in memory does.
func decode(values [][]byte) (time.Duration, error) {
	runtime.GC()
	pods := make([]corev1.Pod, len(values))
	errs := make([]error, runtime.NumCPU())
	began := time.Now()
	var cores sync.WaitGroup
	for core := range errs {
		cores.Go(func() {
			for i := core; i < len(values) && errs[core] == nil; i += len(errs) {
				errs[core] = pods[i].Unmarshal(values[i])
			}
		})
	}
	cores.Wait()
	took := time.Since(began)
	runtime.KeepAlive(pods)
	return took, errors.Join(errs...)
}

// zipped reads one list of all pods without pages, compressed, and decodes none of it.
func (b *bench) zipped(ctx context.Context) (took time.Duration, size int64, err error) {
	cfg := b.server.Config()
	cfg.AcceptContentTypes = protoType
	w := &measured.Wire{}
	w.Attach(cfg)
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return 0, 0, err
	}
	// A program that lists has its connection already.
	pods := client.CoreV1().RESTClient().Get().Resource("pods")
	if _, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return 0, 0, err
	}
	before, began := w.Read().Bodies, time.Now()
	_, err = pods.Do(ctx).Raw()
	took, size = time.Since(began), w.Read().Bodies-before
	if err == nil && size == 0 {
		err = fmt.Errorf("an empty list")
	}
	return took, size, err
}

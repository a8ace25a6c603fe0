package measured

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reads are the times of reads by a program that has synced. They are medians of its own.
type Reads struct {
	Get       time.Duration // one pod by its key, any of all
	Namespace time.Duration // all pods of one namespace
	All       time.Duration // all pods
}

const (
	getsOfBatch = 200 // a clock is too coarse for one
	batches     = 9
	lists       = 3 // of all pods
)

// read measures reads of all pods, by keys and namespaces in random order.
func (c *Cache) read() (r Reads, err error) {
	keys, namespaces := []string(nil), map[string]bool{}
	err = c.List("", func(pod metav1.Object) {
		keys = append(keys, pod.GetNamespace()+"/"+pod.GetName())
		namespaces[pod.GetNamespace()] = true
	})
	if err != nil {
		return r, err
	}
	rnd := rand.New(rand.NewPCG(1, uint64(len(keys))))
	get := func() error {
		key := keys[rnd.IntN(len(keys))]
		ok, err := c.Has(key)
		if err == nil && !ok {
			err = fmt.Errorf("pod %s is not there", key)
		}
		return err
	}
	r.Get, err = timed(batches, func(int) error {
		for range getsOfBatch {
			if err := get(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	r.Get /= getsOfBatch
	count := func(namespace string) (n int, err error) {
		err = c.List(namespace, func(metav1.Object) { n++ })
		return n, err
	}
	spaces := slices.Sorted(maps.Keys(namespaces))
	rnd.Shuffle(len(spaces), func(i, j int) { spaces[i], spaces[j] = spaces[j], spaces[i] })
	r.Namespace, err = timed(batches, func(i int) error {
		n, err := count(spaces[i%len(spaces)])
		if err == nil && n == 0 {
			err = fmt.Errorf("namespace %s has no pods", spaces[i%len(spaces)])
		}
		return err
	})
	if err != nil {
		return r, err
	}
	r.All, err = timed(lists, func(int) error {
		n, err := count("")
		if err == nil && n != len(keys) {
			err = fmt.Errorf("%d pods are listed, of %d", n, len(keys))
		}
		return err
	})
	return r, err
}

// timed returns the median time of n calls.
func timed(n int, do func(i int) error) (time.Duration, error) {
	var took []time.Duration
	for i := range n {
		began := time.Now()
		if err := do(i); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	return slices.Sorted(slices.Values(took))[n/2], nil
}

// load waits until the objects are in memory, if they are to be.
func (c *Cache) load() error {
	if c.Loaded == nil {
		return nil
	}
	// nothing signals that they are
	for deadline := time.Now().Add(2 * time.Minute); !c.Loaded(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("the objects are not in memory")
		}
	}
	return nil
}

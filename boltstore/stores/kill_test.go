package stores_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/stores"
)

// The test binary is the program that is killed, too: with these set, TestKilled writes
// to stores until its end.
const (
	killedDB         = "KUBEWAKE_TEST_STORES"
	killedDurability = "KUBEWAKE_TEST_STORES_DURABILITY"
)

// TestKilled: after the process was killed, every write that had returned is there, with
// its time. A transaction is there completely or not at all.
func TestKilled(t *testing.T) {
	if path := os.Getenv(killedDB); path != "" {
		killedChild(path)
		return
	}
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds {
		for _, durability := range []boltstore.Durability{boltstore.DurabilityFull, boltstore.DurabilityProcess} {
			path := newPath(t)
			began := time.Now()
			lines := killChild(t, path, durability, 60+rand.IntN(400)) // at most four lines a key, three keys under way
			verifyKilled(t, path, lines, began, fmt.Sprint("round ", round))
		}
	}
}

// killChild kills the child after n of its lines, and returns all that it wrote.
func killChild(t *testing.T, path string, durability boltstore.Durability, n int) (lines []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", killedDB+"="+path,
		fmt.Sprint(killedDurability, "=", int(durability)))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for sc := bufio.NewScanner(out); sc.Scan(); {
		lines = append(lines, sc.Text())
		if len(lines) == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || len(lines) < n {
		t.Fatal("the child ended by itself: ", lines)
	}
	return lines
}

func verifyKilled(t *testing.T, path string, lines []string, began time.Time, what string) {
	t.Helper()
	db := open(t, path, boltstore.Options{})
	defer closeDB(t, db)
	c := claimOf(db, "tokens")
	s, pairs := killedStores(c, claimOf(db, "pairs"))
	there := map[string]bool{}
	for _, key := range s.ListKeys() {
		there[key] = true
	}
	was, acked := map[string]string{}, 0
	for _, line := range lines {
		op, key, ok := strings.Cut(line, " ")
		if !ok {
			continue // the kill cut it
		}
		was[key] = op
	}
	for key, op := range was {
		switch {
		case op == "adding", op == "deleting": // the kill came before the answer
			continue
		case there[key] != (op == "added"):
			t.Errorf("%s: %s was %s, and is there: %v", what, key, op, there[key])
		}
		acked++
		if op != "added" {
			continue
		}
		obj, exists, err := s.GetByKey(key)
		if err != nil || !exists || obj.(*token).Value != "value of "+key {
			t.Errorf("%s: %s: %v %v %v", what, key, obj, exists, err)
		}
	}
	if acked < 10 {
		t.Errorf("%s: only %d writes had returned", what, acked)
	}
	page, _, err := c.Filled.PageStored(nil, 10000)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range page {
		if o.Time.Before(began.Add(-time.Second)) || o.Time.After(time.Now().Add(time.Second)) {
			t.Errorf("%s: %s was stored at %s, and the child began at %s", what, o.Key, o.Time, began)
		}
	}
	for i := range 2 {
		a, b := len(must(pairs.IndexKeys("word", fmt.Sprint("a", i)))(t)),
			len(must(pairs.IndexKeys("word", fmt.Sprint("b", i)))(t))
		if a != b {
			t.Errorf("%s: a transaction is there in part: %d and %d", what, a, b)
		}
	}
}

func claimOf(db *boltstore.DB, resource string) *boltstore.Claimed {
	src := tokens
	src.Resource = resource
	c, err := db.Claim(boltstore.Claim{Source: src, Example: &token{}, KeyFunc: tokenKey,
		Indexers: cache.Indexers{"word": byWord["word"]}, IndexVersions: map[string]string{"word": "1"}})
	if err != nil {
		panic(err)
	}
	return c
}

// killedStores are the stores that the child fills.
func killedStores(c *boltstore.Claimed, by *boltstore.Claimed) (cache.Store, cache.ThreadSafeStoreWithTransaction) {
	s, err := stores.NewTTLStore(c, time.Hour)
	if err != nil {
		panic(err)
	}
	pairs, err := stores.NewThreadSafeStore(by, func(err error) { panic(err) })
	if err != nil {
		panic(err)
	}
	return s, pairs
}

// killedChild writes until it is killed. A line is out once the write has returned.
func killedChild(path string) {
	durability := boltstore.DurabilityFull
	if os.Getenv(killedDurability) != "0" {
		durability = boltstore.DurabilityProcess
	}
	db, err := boltstore.Open(path, boltstore.Options{Durability: durability})
	if err != nil {
		panic(err)
	}
	s, pairs := killedStores(claimOf(db, "tokens"), claimOf(db, "pairs"))
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("%d-%d", g, i)
				fmt.Println("adding", key)
				if err := s.Add(&token{key, "value of " + key}); err != nil {
					panic(err)
				}
				fmt.Println("added", key)
				if i%3 == 0 {
					fmt.Println("deleting", key)
					if err := s.Delete(&token{Name: key}); err != nil {
						panic(err)
					}
					fmt.Println("deleted", key)
				}
			}
		})
	}
	wg.Go(func() {
		for i := 0; ; i++ {
			typ := []cache.TransactionType{cache.TransactionTypeAdd, cache.TransactionTypeDelete}[i%2]
			var txns []cache.ThreadSafeStoreTransaction
			for _, half := range []string{"a", "b"} {
				v := fmt.Sprint(half, i/2%2)
				txns = append(txns, cache.ThreadSafeStoreTransaction{Key: v,
					Transaction: cache.Transaction{Type: typ, Object: &token{v, v}}})
			}
			pairs.Transaction(txns...)
		}
	})
	wg.Wait()
}

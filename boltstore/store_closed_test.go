package boltstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
)

// TestReadsAfterClose: methods with an error return ErrClosed. For the others the log
// says, once, why they return nothing.
func TestReadsAfterClose(t *testing.T) {
	var log []string
	l := funcr.New(func(_, args string) { log = append(log, args) }, funcr.Options{})
	db := openTest(t, testPath(t), Options{Logger: &l})
	s := claimTest(t, db, Claim{Indexers: indexers})
	obj := configMap("ns", "a", 1, nil)
	if err := s.Add(obj); err != nil {
		t.Fatal(err)
	}
	closeTest(t, db)
	log = nil
	for range 2 {
		if n := len(s.List()) + len(s.ListKeys()) + len(s.ListIndexFuncValues("words")); n != 0 {
			t.Errorf("%d are read from a closed file", n)
		}
	}
	if len(log) != 1 || !strings.Contains(log[0], "closed") {
		t.Errorf("logged %q", log)
	}
	_, _, getErr := s.Get(obj)
	_, _, keyErr := s.GetByKey("ns/a")
	_, indexErr := s.Index("words", obj)
	_, byErr := s.ByIndex("words", "")
	_, keysErr := s.IndexKeys("words", "")
	for what, err := range map[string]error{"Get": getErr, "GetByKey": keyErr, "Index": indexErr, "ByIndex": byErr,
		"IndexKeys": keysErr, "DB.Err": db.Err()} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

package boltstore

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// TestCallsThatChangeNothing: a program's call that changes nothing takes neither the
// resume point of a source that was listed, nor its being synced. One that changes
// something takes both.
func TestCallsThatChangeNothing(t *testing.T) {
	for name, c := range map[string]struct {
		call    func(s *Claimed) error
		changes bool
	}{
		"delete of what is not there": {call: func(s *Claimed) error {
			return s.Delete(configMap("ns", "none", 1, nil))
		}},
		"transaction of no known type": {call: func(s *Claimed) error {
			err := s.Transaction(cache.Transaction{Type: "other", Object: configMap("ns", "a", 3, nil)})
			if err != nil {
				return err
			}
			return nil
		}},
		"bookmark": {call: func(s *Claimed) error { s.Bookmark("9"); return nil }},
		"delete":   {call: func(s *Claimed) error { return s.Delete(configMap("ns", "a", 1, nil)) }, changes: true},
		"add":      {call: func(s *Claimed) error { return s.Add(configMap("ns", "b", 1, nil)) }, changes: true},
		"replace":  {call: func(s *Claimed) error { return s.Replace(nil, "5") }, changes: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := claimTest(t, openTest(t, testPath(t), Options{}), Claim{})
			relist(t, s, "7", RelistOptions{}, []runtime.Object{configMap("ns", "a", 1, nil)}, 10)
			if err := c.call(s); err != nil {
				t.Fatal(err)
			}
			st := s.State()
			if kept := st.ResourceVersion == "7" && st.Synced; kept == c.changes {
				t.Errorf("version %q, synced %v", st.ResourceVersion, st.Synced)
			}
		})
	}
}

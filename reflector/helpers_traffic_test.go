package reflector

import (
	"github.com/kubewake/kubewake/internal/kubesim"
)

// cost has the requests since the last call, and the bytes sent.
func (f *fixture) cost() kubesim.Cost {
	now := kubesim.CostOf(f.sim.Requests())
	c := now.Since(f.paid)
	f.paid = now
	return c
}

// costs fails the test if that was more than most.
func (f *fixture) costs(what string, most kubesim.Cost) {
	f.t.Helper()
	if broken := f.cost().Exceeds(most); broken != "" {
		f.t.Errorf("%s: %s", what, broken)
	}
}

// forget starts the counts again.
func (f *fixture) forget() {
	f.sim.ResetRequests()
	f.paid = kubesim.Cost{}
}

// sent counts requests since the last call.
func (f *fixture) sent() (lists, watches, full int) {
	c := f.cost()
	return c.Questions, c.Watches, c.FullReads
}

// traffic sums up what pages and everything else took, and in how many lists.
type traffic struct {
	firsts, pages, requests int
	bytes                   int64
}

func (f *fixture) traffic() (n traffic) {
	for _, r := range f.sim.Requests() {
		n.bytes += r.BodyBytes
		n.requests++
		if r.Verb == "list" && r.Query.Get("limit") != "1" {
			n.pages++
			if r.Query.Get("continue") == "" {
				n.firsts++
			}
		}
	}
	return n
}

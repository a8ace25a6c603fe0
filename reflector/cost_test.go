package reflector

import "github.com/kubewake/kubewake/internal/kubesim"

// cost is what the server has been asked for since the last call, and has sent.
func (f *fixture) cost() kubesim.Cost {
	now := kubesim.CostOf(f.sim.Requests())
	c := now.Since(f.paid)
	f.paid = now
	return c
}

// costs fails the test if that was more than most, or if most would let twice
// as much pass.
func (f *fixture) costs(what string, most kubesim.Cost) {
	f.t.Helper()
	if broken := f.cost().Exceeds(most); broken != "" {
		f.t.Errorf("%s: %s", what, broken)
	}
}

// forget begins anew.
func (f *fixture) forget() {
	f.sim.ResetRequests()
	f.paid = kubesim.Cost{}
}

// sent counts requests since the last call.
func (f *fixture) sent() (lists, watches, full int) {
	c := f.cost()
	return c.Questions, c.Watches, c.FullReads
}

package lately

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
)

// confirmed is a source that a cluster confirmed as of a version, at a time by the clock
// of then. An age below 0 is not known.
func confirmed(cluster, version string, at int64, age time.Duration) boltstore.State {
	st := boltstore.State{ClusterUID: cluster, ResourceVersion: version, Confirmed: time.Unix(at, 0)}
	if age >= 0 {
		st.ConfirmedAge = &age
	}
	return st
}

const unknown = -1

// TestCompare: ages decide, and a known age is later than an unknown one. Without ages, the
// versions of one cluster decide, and then the times.
func TestCompare(t *testing.T) {
	for name, c := range map[string]struct {
		a, b boltstore.State
		want int
	}{
		"younger":                     {confirmed("c", "1", 1, 5), confirmed("c", "2", 2, 6), 1},
		"of the same age":             {confirmed("c", "1", 1, 5), confirmed("c", "2", 2, 5), 0},
		"one age is known":            {confirmed("c", "1", 1, time.Hour), confirmed("c", "2", 2, unknown), 1},
		"a later version":             {confirmed("c", "10", 1, unknown), confirmed("c", "9", 2, unknown), 1},
		"the same version":            {confirmed("c", "9", 2, unknown), confirmed("c", "9", 1, unknown), 1},
		"nothing differs":             {confirmed("c", "9", 1, unknown), confirmed("c", "9", 1, unknown), 0},
		"no version":                  {confirmed("c", "", 2, unknown), confirmed("c", "9", 1, unknown), 1},
		"versions that say nothing":   {confirmed("c", "a", 2, unknown), confirmed("c", "b", 1, unknown), 1},
		"version 0":                   {confirmed("c", "0", 2, unknown), confirmed("c", "9", 1, unknown), 1},
		"another cluster":             {confirmed("c", "1", 2, unknown), confirmed("d", "9", 1, unknown), 1},
		"clusters that are not known": {confirmed("", "10", 1, unknown), confirmed("", "9", 2, unknown), 1},
		"one cluster is known":        {confirmed("c", "1", 2, unknown), confirmed("", "9", 1, unknown), 1},
		"never confirmed":             {confirmed("c", "", 1, unknown), boltstore.State{ClusterUID: "c"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got, back := Compare(c.a, c.b), Compare(c.b, c.a); got != c.want || back != -c.want {
				t.Errorf("%d, and %d the other way round, not %d", got, back, c.want)
			}
		})
	}
}

// TestCompareIsAnOrder: sources of one cluster are in an order, whatever ages are known, if
// their versions can be compared.
func TestCompareIsAnOrder(t *testing.T) {
	var all []boltstore.State
	for _, version := range []string{"9", "10", "11"} {
		for at := range int64(3) {
			for _, age := range []time.Duration{unknown, 0, time.Hour} {
				all = append(all, confirmed("c", version, at, age))
			}
		}
	}
	show := func(st boltstore.State) string {
		age := "unknown"
		if st.ConfirmedAge != nil {
			age = st.ConfirmedAge.String()
		}
		return fmt.Sprintf("version %s, time %d, age %s", st.ResourceVersion, st.Confirmed.Unix(), age)
	}
	for _, a := range all {
		for _, b := range all {
			for _, c := range all {
				if Compare(a, b) <= 0 && Compare(b, c) <= 0 && Compare(a, c) > 0 {
					t.Errorf("%s is not after %s, that is not after %s, and the first is after the last", show(a),
						show(b), show(c))
				}
			}
		}
	}
}

// TestCircle: without ages, sources of two clusters may be in a circle. Each pair is right
// then: versions are surer than the clocks of several boots, and between clusters only the
// clocks say something.
func TestCircle(t *testing.T) {
	old, newer, other := confirmed("c", "9", 5, unknown), confirmed("c", "10", 1, unknown),
		confirmed("d", "1", 3, unknown)
	if Compare(newer, old) != 1 || Compare(old, other) != 1 || Compare(other, newer) != 1 {
		t.Error(Compare(newer, old), Compare(old, other), Compare(other, newer))
	}
}

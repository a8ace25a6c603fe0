package reflector

import (
	"slices"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// TestLinkStates is the table of docs/design/waking.md: the next state for each event in
// each state.
func TestLinkStates(t *testing.T) {
	fails := func(l *link) {
		for range 4 {
			l.began(false)
		}
	}
	states := []linkState{linkInDoubt, linkStated, linkExpired, linkRestored, linkUnreadable, linkDisproved}
	for _, tc := range []struct {
		event string
		do    func(*link)
		to    []linkState // from each of the states
	}{
		{"broke", (*link).broke, []linkState{linkInDoubt, linkInDoubt, linkExpired, linkRestored, linkUnreadable,
			linkDisproved}},
		{"stated", (*link).stated, slices.Repeat([]linkState{linkStated}, 6)},
		{"expired", (*link).expired, []linkState{linkExpired, linkExpired, linkExpired, linkRestored, linkExpired,
			linkExpired}},
		{"restored", (*link).restored, slices.Repeat([]linkState{linkRestored}, 6)},
		{"disproved", (*link).disproved, []linkState{linkDisproved, linkDisproved, linkExpired, linkRestored,
			linkUnreadable, linkDisproved}},
		{"another", (*link).another, []linkState{linkInDoubt, linkStated, linkExpired, linkInDoubt, linkUnreadable,
			linkDisproved}},
		{"four failures", fails, []linkState{linkUnreadable, linkUnreadable, linkExpired, linkRestored,
			linkUnreadable, linkDisproved}},
		{"unlisted", func(l *link) { l.unlisted() }, []linkState{linkInDoubt, linkStated, linkExpired, linkRestored,
			linkInDoubt, linkDisproved}},
		{"relisted", (*link).relisted, slices.Repeat([]linkState{linkStated}, 6)},
		{"bookmarked", (*link).bookmarked, states},
		{"refuses", func(l *link) { l.refuses() }, states},
	} {
		for i, from := range states {
			clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
			l := &link{clock: clk, state: from}
			tc.do(l)
			if !l.is(tc.to[i]) {
				t.Errorf("%s makes %d of state %d, want %d", tc.event, l.state, from, tc.to[i])
			}
			if left := from == linkStated && tc.to[i] != linkStated; left != l.doubtedAt().Equal(clk.Now()) {
				t.Errorf("%s in state %d: in doubt since %s", tc.event, from, l.doubtedAt())
			}
		}
	}
}

// TestLinkCounts: lists are read after four watches that begin with an error,
// eight, sixteen; two short watches that bring nothing show that no bookmarks
// come; a refusal lasts until another answer.
func TestLinkCounts(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	l := &link{clock: clk}
	var read []int
	for i := 1; i <= 20; i++ {
		if l.began(false); l.reason() == ReasonUnreadable {
			read = append(read, i)
			l.relisted()
		}
	}
	if len(read) != 3 || read[0] != 4 || read[1] != 8 || read[2] != 16 {
		t.Errorf("lists after %v failures", read)
	}
	if l.began(true); l.failures != 0 {
		t.Errorf("%d failures behind a good beginning", l.failures)
	}
	for _, step := range []struct {
		do   func()
		less bool
	}{
		{func() { l.fellShort(false) }, false},
		{func() { l.fellShort(false) }, true},
		{func() { l.fellShort(true) }, false},
		{func() { l.fellShort(false); l.fellShort(false) }, true},
		{l.bookmarked, false},
	} {
		if step.do(); l.bookmarkless() != step.less {
			t.Errorf("bookmarkless is %v with %d fruitless watches", l.bookmarkless(), l.fruitless)
		}
	}
	l.refuses()
	clk.Step(time.Minute)
	if lasted := l.refuses(); lasted != time.Minute || !l.isRefused() {
		t.Errorf("refused for %s", lasted)
	}
	l.answers()
	if lasted := l.refuses(); lasted != 0 {
		t.Errorf("refused for %s behind another answer", lasted)
	}
}

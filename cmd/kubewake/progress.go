package main

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// bar shows on a terminal how far something has come, in one line that disappears at the
// end. A nil bar shows nothing.
type bar struct {
	w       io.Writer
	what    string
	options []progressbar.Option

	mu    sync.Mutex
	drawn *progressbar.ProgressBar // nil: nothing is shown
	total int64                    // of drawn
}

// newBar returns a bar for so many of something on w, nil if that is no terminal.
func newBar(w io.Writer, what string, of ...progressbar.Option) *bar {
	if !terminal(w) {
		return nil
	}
	return &bar{w: w, what: what, options: of}
}

// to shows that done of total are done. A total of -1 is not known.
func (b *bar) to(done, total int64) {
	if b == nil || total == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drawn == nil || b.drawn.IsFinished() || (total < 0) != (b.total < 0) {
		b.clear()
		b.drawn = progressbar.NewOptions64(total, append([]progressbar.Option{
			progressbar.OptionSetWriter(b.w), progressbar.OptionSetDescription(b.what), progressbar.OptionSetWidth(20),
			progressbar.OptionShowCount(), progressbar.OptionUseANSICodes(true), progressbar.OptionClearOnFinish(),
			progressbar.OptionThrottle(progressEvery / 2), progressbar.OptionSetSpinnerChangeInterval(0),
		}, b.options...)...)
	} else if total != b.total {
		b.drawn.ChangeMax64(total)
	}
	b.total = total
	_ = b.drawn.Set64(done) // a bar that cannot be drawn does no harm
}

// over writes other lines where the bar is.
func (b *bar) over(write func()) {
	if b == nil {
		write()
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
	write()
	if b.drawn != nil {
		_ = b.drawn.RenderBlank()
	}
}

// end removes the bar.
func (b *bar) end() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
	b.drawn = nil
}

func (b *bar) clear() {
	if b.drawn != nil {
		_ = b.drawn.Clear()
	}
}

// progressEvery is how often the terminal shows how far a mirror has come.
const progressEvery = 100 * time.Millisecond

// progress shows how far the first lists of sources have come, until they have ended. It
// is not shown together with events.
func (m *mirror) progress(ctx context.Context) {
	b := newBar(m.streams.ErrOut, "first sync, objects")
	if b == nil || m.events || !m.bar.CompareAndSwap(nil, b) {
		return
	}
	defer m.bar.Store(nil)
	defer b.end()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for first := (firstLists{}); ; {
		done, total, ended := first.of(m.stats.all())
		if ended {
			return
		}
		b.to(done, total)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// firstLists are the sources that have been seen without objects in the file.
type firstLists map[*source]bool

// of says how many objects the first lists have read, and of how many; a total of -1 is
// not known. ended says that all of them are in the file.
func (f firstLists) of(sources []*source) (done, total int64, ended bool) {
	ended = true
	known := true
	for _, src := range sources {
		file := src.inf.Store().State()
		if file.Synced {
			if f[src] {
				done, total = done+int64(file.Objects), total+int64(file.Objects)
			}
			continue
		}
		f[src], ended = true, false
		st := src.inf.State()
		done, total = done+int64(st.Listed), total+int64(st.Listed)
		if st.Remaining != nil {
			total += *st.Remaining
		} else if st.Listed > 0 {
			known = false
		}
	}
	if !known {
		total = -1
	}
	return done, total, ended
}

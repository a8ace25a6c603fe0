package pack

import (
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"
)

// A dictionary is trained from the first page of a source's first list, or from a sample
// of the file once it has enough objects. Another one is trained once the newest packs
// objects far worse than it packed its samples.
const (
	MinObjects     = 50        // objects that a training needs
	MaxSamples     = 128       // objects that a training uses at most
	MaxSampleBytes = 512 << 10 // of samples at most
	Interval       = time.Hour // between two attempts to train
	dictBytes      = 32 << 10  // at most
	MaxDicts       = 8         // of a source; a claim drops the unused ones
	worse          = 1.4       // times the ratio of the samples
	worseAfter     = 1 << 20   // bytes packed before it is judged
)

// Due says whether to train a dictionary now.
func (p *Set) Due(now time.Time) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.training || now.Before(p.next) {
		return false
	}
	c := p.current
	if c == nil {
		return true
	}
	in, out := c.in.Load(), c.out.Load()
	return in >= worseAfter && float64(out) > worse*c.Ratio*float64(in)
}

// Begin is Due, and reserves the training for the caller, who then calls End.
func (p *Set) Begin(now time.Time) bool {
	if !p.Due(now) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.training {
		return false
	}
	p.training, p.next = true, now.Add(Interval)
	return true
}

// End ends a training that Begin reserved.
func (p *Set) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.training = false
}

// Sampler collects samples up to the bounds of a training.
type Sampler struct {
	Samples [][]byte
	size    int
}

// Add keeps b if there is room.
func (s *Sampler) Add(b []byte) {
	if s.size+len(b) <= MaxSampleBytes && len(s.Samples) < MaxSamples {
		s.Samples, s.size = append(s.Samples, b), s.size+len(b)
	}
}

// Train trains a dictionary with three quarters of the samples, and measures it with
// the others. It returns an error if the dictionary does not save enough.
func Train(version uint32, samples [][]byte) (p *Packer, err error) {
	defer func() {
		if r := recover(); r != nil { // the builder panics on some data
			p, err = nil, fmt.Errorf("train: %v", r)
		}
	}()
	var with, others [][]byte
	for i, b := range samples {
		if i%4 == 3 {
			others = append(others, b)
		} else {
			with = append(with, b)
		}
	}
	if len(others) < 4 {
		return nil, fmt.Errorf("%d samples are too few", len(samples))
	}
	d, err := zstd.BuildDict(zstd.BuildDictOptions{ID: version, Contents: with, History: cover(with, dictBytes), Offsets: [3]int{1, 4, 8}, Level: zstd.SpeedFastest})
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	if p, err = newPacker(version, d); err != nil {
		return nil, err
	}
	in, by, without := 0, 0, 0
	size := func(p *Packer, b []byte) int {
		packed := p.Pack(b)
		if packed == nil {
			return len(b)
		}
		return len(packed)
	}
	for _, b := range others {
		in, by, without = in+len(b), by+size(p, b), without+size(plainPacker, b)
	}
	if float64(by) > 0.9*float64(without) {
		return nil, fmt.Errorf("it would not pay: %d bytes, %d without it", by, without)
	}
	p.Ratio = float64(by) / float64(in)
	p.in.Store(0)
	p.out.Store(0)
	return p, nil
}

// Hurry makes a training due, for tests: with worse as if the newest dictionary packed
// far worse, otherwise as if the interval had passed.
func (p *Set) Hurry(worse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = time.Time{}
	if c := p.current; c != nil && worse {
		c.in.Store(worseAfter)
		c.out.Store(worseAfter)
	}
}

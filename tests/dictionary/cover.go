package main

import "encoding/binary"

// segment is how many bytes of a sample go into the dictionary at a time. Longer pieces
// have more that is not common, and shorter ones leave fewer long matches.
const segment = 1 << 10

// coverBits is the size, in bits, of the table that counts the common parts of samples.
const coverBits = 17

// cover returns up to most bytes of the samples: the segments that have most in common
// with other samples. It divides the samples into as many stretches as segments fit, and
// takes the best segment of each. Parts that were taken do not count again. The first
// segment comes last, where matches cost least.
//
// This is the method of zstd's own trainer. It needs 1 MiB of memory.
func cover(samples [][]byte, most int) []byte {
	count := commonness(samples)
	total := 0
	for _, b := range samples {
		total += len(b)
	}
	stretches := max(most/segment, 1)
	var chosen [][]byte
	size := 0
	from := walker{samples: samples}
	for none := 0; size < most && none < stretches; {
		best := from.best(count, max(total/stretches, segment))
		if best == nil {
			none++
			continue
		}
		none = 0
		for j := 0; j+8 <= len(best); j++ {
			count[coverHash(best[j:])] = 0
		}
		best = best[:min(len(best), most-size)]
		chosen, size = append(chosen, best), size+len(best)
	}
	out := make([]byte, 0, size)
	for i := len(chosen) - 1; i >= 0; i-- {
		out = append(out, chosen[i]...)
	}
	return out
}

func coverHash(b []byte) uint32 {
	return uint32(binary.LittleEndian.Uint64(b) * 0xcf1bbcdcb7a56463 >> (64 - coverBits))
}

// commonness counts in how many samples each eight bytes occur, by their hash. Eight
// bytes that occur in only one sample count as 0.
func commonness(samples [][]byte) []uint16 {
	count, last := make([]uint16, 1<<coverBits), make([]uint16, 1<<coverBits)
	for i, b := range samples {
		for j := 0; j+8 <= len(b); j++ {
			if h := coverHash(b[j:]); last[h] != uint16(i+1) {
				last[h] = uint16(i + 1)
				count[h]++
			}
		}
	}
	for h, n := range count {
		if n == 1 {
			count[h] = 0
		}
	}
	return count
}

// walker goes round the samples.
type walker struct {
	samples [][]byte
	i, at   int
}

// best returns the segment of the next size bytes that counts most, nil if nothing
// there counts.
func (w *walker) best(count []uint16, size int) (best []byte) {
	most := 0
	for size > 0 {
		b := w.samples[w.i][w.at:]
		b = b[:min(len(b), size)]
		score := 0
		for j := 0; j+8 <= len(b); j++ {
			score += int(count[coverHash(b[j:])])
			if j >= segment {
				score -= int(count[coverHash(b[j-segment:])])
			}
			if score > most {
				most, best = score, b[max(0, j-segment+1):j+8]
			}
		}
		size -= max(len(b), 1)
		if w.at += len(b); w.at >= len(w.samples[w.i]) {
			w.i, w.at = (w.i+1)%len(w.samples), 0
		}
	}
	return best
}

package layout

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
)

// words is a cursor over words in their given order, as damage may leave them.
type words struct {
	all []string
	at  int
}

func (w *words) Seek(at []byte) ([]byte, int) {
	w.at = slices.IndexFunc(w.all, func(s string) bool { return s >= string(at) })
	if w.at < 0 {
		w.at = len(w.all)
	}
	return w.here()
}

func (w *words) Next() ([]byte, int) { w.at++; return w.here() }

func (w *words) here() ([]byte, int) {
	if w.at >= len(w.all) {
		return nil, 0
	}
	return []byte(w.all[w.at]), w.at
}

// TestPage: pages of any size cover everything once, and a circle ends in an error.
func TestPage(t *testing.T) {
	for name, all := range map[string]string{"sorted": "a b c d e f g", "one": "a", "none": "", "circle": "a b c a"} {
		for size := 1; size < 9; size++ {
			w := &words{all: strings.Fields(all)}
			var got []string
			var from []byte
			var err error
			for pages := 0; ; pages++ {
				if pages > 10 {
					t.Fatalf("%s: pages of %d do not end", name, size)
				}
				n := 0
				from, err = Page(w, from, func(at []byte, _ int) bool {
					if n == size {
						return false
					}
					n++
					got = append(got, string(at))
					return true
				})
				if from == nil || err != nil {
					break
				}
			}
			circle := name == "circle" && (size == 1 || size == 3) // otherwise the page has it all
			if circle != errors.Is(err, faults.ErrDamaged) {
				t.Errorf("%s, pages of %d: %v", name, size, err)
			}
			if name != "circle" && !slices.Equal(got, w.all) {
				t.Errorf("%s, pages of %d: %q", name, size, got)
			}
		}
	}
}

package codec_test

import (
	"encoding"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/boltstore/codec"
	"k8s.io/apimachinery/pkg/runtime"
)

// Types whose marshalers do not expect some values, such as a nil that a transform has
// left.
type (
	writesJSONNot struct{ s *string }
	readsJSONNot  struct{ s string }
	writesTextNot struct{ s *string }
	readsTextNot  struct{ s string }
)

func (v writesJSONNot) MarshalJSON() ([]byte, error)  { return json.Marshal(*v.s) }
func (v *writesJSONNot) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &v.s) }
func (v readsJSONNot) MarshalJSON() ([]byte, error)   { return json.Marshal(v.s) }
func (v *readsJSONNot) UnmarshalJSON([]byte) error    { panic("not this") }
func (v writesTextNot) MarshalText() ([]byte, error)  { return []byte(*v.s), nil }
func (v *writesTextNot) UnmarshalText(b []byte) error { s := string(b); v.s = &s; return nil }
func (v readsTextNot) MarshalText() ([]byte, error)   { return []byte(v.s), nil }
func (v *readsTextNot) UnmarshalText([]byte) error    { panic("not this") }

var (
	_ json.Unmarshaler         = &readsJSONNot{}
	_ encoding.TextUnmarshaler = &readsTextNot{}
)

// TestPanics: a panic of a type's own marshaler becomes an error of that object. The
// process goes on, and so does the codec with other objects.
func TestPanics(t *testing.T) {
	for _, tc := range []struct {
		name string
		obj  runtime.Object
		good runtime.Object
		err  error
	}{
		{"MarshalJSON", &of[[]*writesJSONNot]{Spec: []*writesJSONNot{{}}}, &of[[]*writesJSONNot]{},
			codec.ErrUnsupported},
		{"MarshalText", &of[*writesTextNot]{Spec: &writesTextNot{}}, &of[*writesTextNot]{}, codec.ErrUnsupported},
		{"a key's MarshalText", &of[map[writesTextNot]int]{Spec: map[writesTextNot]int{{}: 1}},
			&of[map[writesTextNot]int]{}, codec.ErrUnsupported},
		{"UnmarshalJSON", &of[[]readsJSONNot]{Spec: []readsJSONNot{{"a"}}}, &of[[]readsJSONNot]{}, codec.ErrDamaged},
		{"UnmarshalText", &of[[]readsTextNot]{Spec: []readsTextNot{{"a"}}}, &of[[]readsTextNot]{}, codec.ErrDamaged},
		{"a key's UnmarshalText", &of[map[readsTextNot]int]{Spec: map[readsTextNot]int{{"a"}: 1}},
			&of[map[readsTextNot]int]{}, codec.ErrDamaged},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := codec.For(tc.obj)
			if err != nil {
				t.Fatal(err)
			}
			dst := []byte("before")
			b, err := c.Append(dst, tc.obj)
			if tc.err == codec.ErrDamaged {
				if err != nil {
					t.Fatal(err)
				}
				_, err = c.Decode(b[len(dst):])
			} else if string(b) != "before" {
				t.Errorf("appended %q", b)
			}
			if !errors.Is(err, tc.err) || !strings.Contains(err.Error(), "panicked") {
				t.Errorf("%v", err)
			}
			if b, err = c.Append(nil, tc.good); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Decode(b); err != nil {
				t.Error(err)
			}
		})
	}
}

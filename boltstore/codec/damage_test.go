package codec_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/boltstore/codec"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
)

// examples has objects for each codec.
func examples() map[string]kruntime.Object {
	sts := &appsv1.StatefulSet{}
	filler(3, true).Fill(sts)
	return map[string]kruntime.Object{
		"protobuf":     pod(),
		"metadata":     &metav1.PartialObjectMetadata{ObjectMeta: pod().ObjectMeta},
		"json":         sts,
		"widget":       widget(),
		"unstructured": unstructuredPod(),
	}
}

// survives decodes data that may be damaged. The result must be a usable object, and
// decoding must not need memory out of proportion.
func survives(t *testing.T, c codec.Codec, data []byte) {
	t.Helper()
	before := bytes.Clone(data)
	obj, err := c.Decode(data)
	if !bytes.Equal(data, before) {
		t.Fatal("Decode changed its input")
	}
	if err != nil {
		if !errors.Is(err, codec.ErrDamaged) || obj != nil {
			t.Fatalf("Decode = %v, %v", obj, err)
		}
		return
	}
	out, err := c.Append(nil, obj)
	if err != nil {
		return // a value that Append refuses to write, such as a marshaler's
	}
	again, err := c.Decode(out)
	if err != nil {
		t.Fatalf("decoded, appended, and not decoded: %v", err)
	}
	if out2, err := c.Append(nil, again); err != nil || !bytes.Equal(out, out2) {
		if !apiequality.Semantic.DeepEqual(obj, again) {
			t.Fatalf("decoded object does not come back: %v", err)
		}
	}
}

// TestDamagedPayloads: an object that is cut, or has flipped bits, is decoded to a good
// object or refused. Decoding has no goroutines, so the race detector, which makes it
// ten times slower, sees a part of the cases.
func TestDamagedPayloads(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, obj := range examples() {
		t.Run(name, func(t *testing.T) {
			c := codecFor(t, obj)
			data, err := c.Append(nil, obj)
			if err != nil {
				t.Fatal(err)
			}
			cut, flips := 1, 5000
			if testing.Short() || underRace {
				cut, flips = 1+len(data)/100, 200
			}
			for n := 0; n < len(data); n += cut {
				survives(t, c, data[:n:n])
			}
			for range flips {
				flipped := bytes.Clone(data)
				for range 1 + rnd.IntN(3) {
					flipped[rnd.IntN(len(flipped))] ^= 1 << rnd.IntN(8)
				}
				survives(t, c, flipped)
			}
		})
	}
}

// TestHugeLengths: a length in the data does not cause an allocation of that size.
func TestHugeLengths(t *testing.T) {
	huge := "\xff\xff\xff\xff"
	pad := strings.Repeat("\xc1", 1<<20) // the one code that msgpack never uses
	for name, data := range map[string]string{
		"string":        "\x81\xa4spec\xdb" + huge,
		"name":          "\x81\xdb" + huge,
		"map":           "\xdf" + huge,
		"array":         "\xdd" + huge,
		"inner map":     "\x81\xa4spec\xdf" + huge,
		"inner array":   "\x81\xa4spec\x81\xa8children\xdd" + huge,
		"inner string":  "\x81\xa4spec\x81\xa6shared\xdb" + huge,
		"padded map":    "\xdf\x00\x10\x00\x00" + pad,
		"padded array":  "\x81\xa4spec\x81\xa8children\xdd\x00\x10\x00\x00" + pad,
		"padded bytes":  "\x81\xa4spec\x81\xa5bytes\xc6\x00\x20\x00\x00" + pad,
		"ext":           "\x81\xa4spec\xc9" + huge,
		"no field":      "\x81\xa4none\xdf" + huge,
		"deep field":    "\x81\xa4none" + strings.Repeat("\x91", 1<<20),
		"deep, whole":   "\x81\xa4none" + strings.Repeat("\x91", 20_000) + "\xc0",
		"deep JSON":     strings.Repeat(`{"a":`, 200_000),
		"protobuf":      "\x00\x00\x0a\xff\xff\xff\xff\x07",
		"protobuf head": "\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
	} {
		for _, obj := range examples() {
			c := codecFor(t, obj)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := c.Decode([]byte(data))
			runtime.ReadMemStats(&after)
			if !errors.Is(err, codec.ErrDamaged) {
				t.Errorf("%s, %s: %v", name, c.Name(), err)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
				t.Errorf("%s, %s: %d bytes allocated", name, c.Name(), n)
			}
		}
	}
}

// fuzzDecode starts from a small object: large ones take the fuzzer's time.
func fuzzDecode(f *testing.F, obj kruntime.Object) {
	c := codecFor(f, obj)
	data, err := c.Append(nil, obj)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte("\x81\xa4spec\x81\xa8children\x92\x80\xc0"))
	f.Fuzz(func(t *testing.T, data []byte) { survives(t, c, data) })
}

func FuzzDecodeProtobuf(f *testing.F) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "b"}}}
	p.Spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("1")}
	fuzzDecode(f, p)
}

func FuzzDecodeJSON(f *testing.F) { fuzzDecode(f, widget()) }

func FuzzDecodeUnstructured(f *testing.F) {
	fuzzDecode(f, unstructuredOf(map[string]any{"kind": "K",
		"a": []any{int64(-300), 1.5, nil, true, map[string]any{}}}))
}

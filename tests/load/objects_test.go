//go:build linux

package load

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// The sources: of the large one reads come from the file, of the small one from memory.
const (
	large = iota
	small
	sources
)

var resources = [sources]string{"configmaps", "secrets"}

// together is about how many objects share a namespace, or a value of the index.
const together = 100

// sizes are how many keys each source has. Some of their objects are gone at any time.
type sizes [sources]int

func (s sizes) namespace(src, slot int) string {
	return fmt.Sprintf("ns-%04d", slot%s.values(src))
}

// values is how many namespaces a source has, and values of its index.
func (s sizes) values(src int) int { return max(s[src]/together, 4) }

// content is what is written to a key: the slot is the key's number, inc counts the objects
// that have had it, and turn the writes to it. Equal arguments make equal objects.
type content struct {
	src, slot int
	inc, turn uint32
}

const indexName, groupLabel, turnAnnotation = "group", "load.test/group", "load.test/turn"

// indexers of both sources.
func indexers() cache.Indexers {
	return cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		indexName: func(obj any) ([]string, error) {
			return []string{obj.(metav1.Object).GetLabels()[groupLabel]}, nil
		},
	}
}

func (s sizes) group(c content) string {
	return strconv.Itoa((c.slot*7 + int(c.turn)) % s.values(c.src))
}

// object makes the object as it is written.
func (s sizes) object(c content) kubesim.Object {
	meta := metav1.ObjectMeta{
		Namespace: s.namespace(c.src, c.slot), Name: fmt.Sprintf("o-%06d", c.slot),
		UID:               types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", c.slot, c.inc)),
		CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000+int64(c.inc), 0)),
		Labels:            map[string]string{groupLabel: s.group(c), "app": "load"},
		Annotations:       map[string]string{turnAnnotation: strconv.FormatUint(uint64(c.turn), 10)},
	}
	text := text(c)
	if c.src == small {
		return &corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeOpaque,
			Data: map[string][]byte{"text": []byte(text)}}
	}
	return &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"text": text}}
}

// text is some 300 to 1,300 bytes, of which half is the same at each turn.
func text(c content) string {
	same := rand.New(rand.NewPCG(uint64(c.src), uint64(c.slot)))
	turns := rand.New(rand.NewPCG(uint64(c.inc)<<32|uint64(c.turn), uint64(c.slot)))
	var b strings.Builder
	for range 10 + same.IntN(30) {
		fmt.Fprintf(&b, "%016x %016x", same.Uint64(), turns.Uint64())
	}
	return b.String()
}

func example(src int) kubesim.Object {
	if src == small {
		return &corev1.Secret{}
	}
	return &corev1.ConfigMap{}
}

// identity is what an object that was read or told says of its key.
func identity(m metav1.Object) (slot int, inc uint32, version uint64, err error) {
	uid := string(m.GetUID())
	if len(uid) != 36 {
		return 0, 0, 0, fmt.Errorf("%s has the UID %q", m.GetName(), uid)
	}
	s, err := strconv.ParseUint(uid[:8], 16, 32)
	if err != nil {
		return 0, 0, 0, err
	}
	i, err := strconv.ParseUint(uid[24:], 16, 32)
	if err != nil {
		return 0, 0, 0, err
	}
	version, err = strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	return int(s), uint32(i), version, err
}

// whole says whether an object has exactly what was written with its slot, inc and turn.
func (s sizes) whole(m metav1.Object) error {
	slot, inc, _, err := identity(m)
	if err != nil {
		return err
	}
	turn, err := strconv.ParseUint(m.GetAnnotations()[turnAnnotation], 10, 32)
	if err != nil {
		return err
	}
	src := large
	if _, ok := m.(*corev1.Secret); ok {
		src = small
	}
	want := s.object(content{src, slot, inc, uint32(turn)})
	want.SetResourceVersion(m.GetResourceVersion())
	if !apiequality.Semantic.DeepEqual(want, m) {
		return fmt.Errorf("it is\n%+v\nnot\n%+v", m, want)
	}
	return nil
}

// slotOf is the number of a key.
func slotOf(key string) int {
	n, err := strconv.Atoi(key[strings.LastIndexByte(key, '-')+1:])
	if err != nil {
		panic(err)
	}
	return n
}

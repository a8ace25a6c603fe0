package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubewake/kubewake/internal/podgen"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
)

const (
	streamPods = 8000
	firstRV    = 1_000_000 // of the list; event i is at firstRV+1+i
	protoType  = "application/vnd.kubernetes.protobuf"
)

// feed is a recorded stream of updates: frames as they go over the wire.
type feed struct {
	frames [][]byte
	pods   []int   // of which pod each frame is
	object float64 // mean size of an object in protobuf
}

// fill has a handler that is told states, and not each change, be told a change when it was
// told a later one of the same pod.
func (f *feed) fill(told []int64) {
	later := map[int]int64{}
	for i, at := range slices.Backward(told) {
		if at == 0 {
			told[i] = later[f.pods[i]]
		}
		later[f.pods[i]] = told[i]
	}
}

// streamServer answers lists and watches of pods from memory. For each event it only
// writes prepared bytes, so the figures are the client's.
type streamServer struct {
	host string
	list []byte
	// watching gets each watch when it is opened.
	watching chan *streamWatch
}

// streamWatch is an open watch, from which events are sent.
type streamWatch struct {
	w     http.ResponseWriter
	feed  *feed
	sent  int // frames
	times []int64
	gone  <-chan struct{}
	ended chan struct{}
}

var protoSerializer = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

func encodeProto(obj runtime.Object, kind string) ([]byte, error) {
	obj.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return runtime.Encode(protoSerializer, obj)
}

// makePods returns the pods at firstRV, in the order of their keys.
func makePods() []*corev1.Pod {
	gen := podgen.New(1)
	seen := map[string]*corev1.Pod{}
	for i := 0; len(seen) < streamPods; i++ {
		p := gen.Pod(i)
		p.ResourceVersion = strconv.Itoa(firstRV)
		seen[cache.MetaObjectToName(p).String()] = p
	}
	var pods []*corev1.Pod
	for _, p := range seen {
		pods = append(pods, p)
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return strings.Compare(cache.MetaObjectToName(a).String(), cache.MetaObjectToName(b).String())
	})
	return pods
}

// makeFeed records n updates. next chooses the pod of each.
func makeFeed(pods []*corev1.Pod, n int, next func(i int) int) (*feed, error) {
	gen := podgen.New(1)
	now := map[int]*corev1.Pod{}
	turns := map[int]int{}
	f := &feed{}
	total := 0
	for i := range n {
		at := next(i)
		p := now[at]
		if p == nil {
			p = pods[at].DeepCopy()
			now[at] = p
		}
		gen.Mutate(p, turns[at])
		turns[at]++
		p.ResourceVersion = strconv.Itoa(firstRV + 1 + i)
		total += p.Size()
		frame, err := watchFrame(watch.Modified, p)
		if err != nil {
			return nil, err
		}
		f.frames, f.pods = append(f.frames, frame), append(f.pods, at)
	}
	f.object = float64(total) / float64(n)
	return f, nil
}

// anywhere picks pods evenly.
func anywhere() func(int) int {
	r := rand.New(rand.NewPCG(1, 1))
	return func(int) int { return r.IntN(streamPods) }
}

// rollouts picks 25 pods that are neighbours, as a workload's are, and updates
// each of them four times in turn, as a rollout does; then others.
func rollouts() func(int) int {
	const run, times = 25, 4
	r := rand.New(rand.NewPCG(1, 2))
	from := 0
	return func(i int) int {
		if i%(run*times) == 0 {
			from = r.IntN(streamPods - run)
		}
		return from + i%run
	}
}

func watchFrame(typ watch.EventType, p *corev1.Pod) ([]byte, error) {
	raw, err := encodeProto(p, "Pod")
	if err != nil {
		return nil, err
	}
	msg, err := (&metav1.WatchEvent{Type: string(typ), Object: runtime.RawExtension{Raw: raw}}).Marshal()
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(msg))), msg...), nil
}

func newStreamServer(pods []*corev1.Pod) (*streamServer, error) {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(firstRV)}}
	for _, p := range pods {
		list.Items = append(list.Items, *p)
	}
	s := &streamServer{watching: make(chan *streamWatch)}
	var err error
	if s.list, err = encodeProto(list, "PodList"); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.host = "http://" + l.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/pods", s.serve)
	mux.HandleFunc("GET /api/v1/namespaces/kube-system", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"Namespace","apiVersion":"v1",`+
			`"metadata":{"name":"kube-system","uid":"d7a0c2e4-0000-4000-a000-000000000001"}}`)
	})
	go func() { _ = (&http.Server{Handler: mux}).Serve(l) }() // until the program ends
	return s, nil
}

func (s *streamServer) serve(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch {
	case q.Get("sendInitialEvents") != "":
		http.Error(w, "no streamed lists here", http.StatusUnprocessableEntity)
	case q.Get("watch") != "":
		s.watch(w, r)
	case q.Get("fieldSelector") != "":
		w.Header().Set("Content-Type", protoType)
		empty, _ := encodeProto(&corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(firstRV)}},
			"PodList")
		_, _ = w.Write(empty)
	default:
		w.Header().Set("Content-Type", protoType)
		_, _ = w.Write(s.list)
	}
}

func (s *streamServer) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", protoType+";stream=watch")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	sw := &streamWatch{w: w, gone: r.Context().Done(), ended: make(chan struct{})}
	select {
	case s.watching <- sw:
	case <-sw.gone:
		return
	}
	select {
	case <-sw.ended:
	case <-sw.gone:
	}
}

// send writes the next n frames and notes when.
func (sw *streamWatch) send(n int) error {
	for range n {
		sw.times = append(sw.times, time.Now().UnixNano())
		if _, err := sw.w.Write(sw.feed.frames[sw.sent]); err != nil {
			return err
		}
		sw.sent++
	}
	sw.w.(http.Flusher).Flush()
	return nil
}

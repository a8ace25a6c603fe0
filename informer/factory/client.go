package factory

import (
	"context"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer/internal/stated"
)

// path leads from a clientset to the client of a type, as CoreV1().Pods(namespace) does.
type path struct {
	group, resource string // methods
	namespaced      bool   // resource takes a namespace
}

var (
	contextType = reflect.TypeFor[context.Context]()
	optionsType = reflect.TypeFor[metav1.ListOptions]()
	errorType   = reflect.TypeFor[error]()
	watchType   = reflect.TypeFor[watch.Interface]()
)

// find looks for the client whose List returns objects of typ, a pointer type.
func find(clientset, typ reflect.Type) (path, error) {
	for group := range clientset.Methods() {
		if !takes(group.Type) || group.Type.NumOut() != 1 || group.Type.Out(0).Kind() != reflect.Interface {
			continue
		}
		for resource := range group.Type.Out(0).Methods() {
			namespaced := takes(resource.Type, reflect.TypeFor[string]())
			if (namespaced || takes(resource.Type)) && resource.Type.NumOut() == 1 && lists(resource.Type.Out(0), typ) {
				return path{group.Name, resource.Name, namespaced}, nil
			}
		}
	}
	return path{}, fmt.Errorf("no client of %v lists and watches it", clientset)
}

// lists says whether a client lists and watches objects of typ.
func lists(client, typ reflect.Type) bool {
	if client.Kind() != reflect.Interface {
		return false
	}
	list, ok := client.MethodByName("List")
	if !ok || !takes(list.Type, contextType, optionsType) || list.Type.NumOut() != 2 || list.Type.Out(1) != errorType {
		return false
	}
	w, ok := client.MethodByName("Watch")
	if !ok || !takes(w.Type, contextType, optionsType) || !gives(w.Type, watchType, errorType) {
		return false
	}
	of := list.Type.Out(0)
	if !of.Implements(objectType) || of.Kind() != reflect.Pointer || of.Elem().Kind() != reflect.Struct {
		return false
	}
	items, ok := of.Elem().FieldByName("Items")
	return ok && items.Type.Kind() == reflect.Slice && (items.Type.Elem() == typ.Elem() || items.Type.Elem() == typ)
}

// client calls the methods.
func (p path) client(clientset reflect.Value, namespace string) reflect.Value {
	var args []reflect.Value
	if p.namespaced {
		args = append(args, reflect.ValueOf(namespace))
	}
	group := clientset.MethodByName(p.group).Call(nil)[0]
	return group.MethodByName(p.resource).Call(args)[0]
}

// listWatch lists and watches in the same way as an informer that the factory makes
// itself.
func (p path) listWatch(clientset reflect.Value, f Filter, example runtime.Object) cache.ListerWatcher {
	call := func(ctx context.Context, method string, o metav1.ListOptions) (any, error) {
		if f.TweakListOptions != nil {
			f.TweakListOptions(&o)
		}
		out := p.client(clientset, f.Namespace).MethodByName(method).Call([]reflect.Value{reflect.ValueOf(ctx),
			reflect.ValueOf(o)})
		if err, _ := out[1].Interface().(error); err != nil {
			return nil, err
		}
		return out[0].Interface(), nil
	}
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := call(ctx, "List", o)
			if err != nil {
				return nil, err
			}
			return list.(runtime.Object), nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := call(ctx, "Watch", o)
			if err != nil {
				return nil, err
			}
			return w.(watch.Interface), nil
		},
	}, clientset.Interface())
	if src, ok := p.stated(clientset, f, example); ok {
		return stated.ListerWatcher(lw, src)
	}
	return lw
}

// stated is the source that a fake client lists. Only a request shows what any other
// client lists. The fakes that earlier code-generators wrote do not say what they list.
func (p path) stated(clientset reflect.Value, f Filter, example runtime.Object) (src boltstore.Source, ok bool) {
	if !stated.Fake(clientset.Interface()) {
		return src, false
	}
	gvr, namespace := stated.Guess(example), f.Namespace
	if c, ok := p.client(clientset, f.Namespace).Interface().(interface {
		Resource() schema.GroupVersionResource
		Namespace() string
	}); ok {
		gvr, namespace = c.Resource(), c.Namespace()
	}
	return stated.Source(gvr, namespace, f.TweakListOptions, boltstore.FormTyped), true
}

package factory

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
)

// Options of the informers in a factory. The zero value is a good default.
type Options struct {
	// Informer has the options of each informer. The factory's resync period and
	// transform take the place of those here, and TransformVersion is for the factory's
	// transform. The index by namespace is added. If types need different options, call
	// Wake for each.
	Informer informer.Options
	// Filter says what the factory lists. Set it if Wake returns an error that asks for
	// it. Default: read from the factory.
	Filter *Filter
}

// Filter restricts a factory's lists. The zero value is no restriction.
type Filter struct {
	// Namespace restricts lists to a namespace.
	Namespace string
	// TweakListOptions changes the options of each list and watch, to set selectors.
	TweakListOptions func(*metav1.ListOptions)
}

// Wake makes informers of the types over the file, and registers them in f, a generated
// SharedInformerFactory. Call it before anything asks f for these types. types are
// objects such as &corev1.Pod{}; their contents do not matter.
//
// Clients of f must come from a config that reflector.WrapConfig has changed, or be a
// fake clientset. Otherwise the error is reflector.ErrUnidentified. It is
// boltstore.ErrClaimed if another informer has one of the lists. The informers of an earlier
// factory have theirs until its Shutdown returns or, if it never started, the DB is closed.
//
// f will cache the types that the error names in memory. The others wake.
func Wake(f any, db *boltstore.DB, o Options, types ...runtime.Object) error {
	g, err := generated(f)
	if err != nil {
		return err
	}
	if len(types) == 0 {
		return errors.New("factory: name the types that are to wake, such as &corev1.Pod{}")
	}
	if o.Informer.Reflector.Source != nil && len(types) > 1 {
		return fmt.Errorf("factory: Reflector.Source names one list, and these are %d types: wake each by a call "+
			"of its own", len(types))
	}
	if o.Filter == nil {
		if o.Filter, err = filterOf(f); err != nil {
			return err
		}
	}
	if named, ok := f.(interface{ InformerName() *cache.InformerName }); ok && o.Informer.InformerName == nil {
		o.Informer.InformerName = named.InformerName()
	}
	var errs []error
	for _, example := range types {
		if err := g.wake(db, o, example); err != nil {
			errs = append(errs, fmt.Errorf("factory: %T: %w", example, err))
		}
	}
	return errors.Join(errs...)
}

// Informer returns the informer over the file that Wake has registered in f for example's
// type. It can do more than client-go's. The informers and listers that f returns read
// from the same one.
func Informer(f any, example runtime.Object) (*informer.Informer, error) {
	g, err := generated(f)
	if err != nil {
		return nil, err
	}
	if example == nil {
		return nil, fmt.Errorf("factory: %w", errNoType)
	}
	got, err := g.informerFor(example, func(reflect.Value, time.Duration) (cache.SharedIndexInformer, error) {
		return nil, errLooked
	})
	inf, ok := got.(*informer.Informer)
	if !ok {
		return nil, fmt.Errorf("factory: %T was not woken: it has no informer over a file, but %T", example, got)
	}
	return inf, err
}

// factory is the one method of a generated factory that matters here. Its types differ
// from project to project.
type factory struct {
	method  reflect.Value // InformerFor(runtime.Object, NewInformerFunc) cache.SharedIndexInformer
	newFunc reflect.Type  // func(client, time.Duration) cache.SharedIndexInformer
}

var (
	objectType   = reflect.TypeFor[runtime.Object]()
	durationType = reflect.TypeFor[time.Duration]()
	informerType = reflect.TypeFor[cache.SharedIndexInformer]()
)

// generated finds InformerFor.
func generated(f any) (factory, error) {
	if v := reflect.ValueOf(f); v.IsValid() && (v.Kind() != reflect.Pointer || !v.IsNil()) {
		m := v.MethodByName("InformerFor")
		if m.IsValid() && takes(m.Type(), objectType, nil) && gives(m.Type(), informerType) {
			if fn := m.Type().In(1); fn.Kind() == reflect.Func && takes(fn, nil, durationType) &&
				gives(fn, informerType) && fn.In(0).Kind() == reflect.Interface {
				return factory{m, fn}, nil
			}
		}
	}
	return factory{}, fmt.Errorf("factory: a %T is no generated SharedInformerFactory: it has no method "+
		"InformerFor(runtime.Object, func(clientset, time.Duration) cache.SharedIndexInformer)", f)
}

// takes says whether the arguments are of these types. nil stands for any.
func takes(fn reflect.Type, args ...reflect.Type) bool {
	if fn.NumIn() != len(args) || fn.IsVariadic() {
		return false
	}
	for i, want := range args {
		if want != nil && fn.In(i) != want {
			return false
		}
	}
	return true
}

func gives(fn reflect.Type, results ...reflect.Type) bool {
	if fn.NumOut() != len(results) {
		return false
	}
	for i, want := range results {
		if fn.Out(i) != want {
			return false
		}
	}
	return true
}

// stop is the panic by which a factory is left without an informer.
type stop struct{ err error }

// informerFor calls InformerFor, which calls create if the factory has no informer of
// that type. If create fails, the factory stays without: InformerFor cannot return an
// error, so a panic ends it, releases its lock and stores nothing.
func (g factory) informerFor(example runtime.Object,
	create func(client reflect.Value, resync time.Duration) (cache.SharedIndexInformer,
		error)) (inf cache.SharedIndexInformer, err error) {
	defer func() {
		if r := recover(); r != nil {
			s, ok := r.(stop)
			if !ok {
				panic(r)
			}
			err = s.err
		}
	}()
	fn := reflect.MakeFunc(g.newFunc, func(args []reflect.Value) []reflect.Value {
		made, err := create(args[0], time.Duration(args[1].Int()))
		if err != nil {
			panic(stop{err})
		}
		return []reflect.Value{reflect.ValueOf(&made).Elem()}
	})
	out := g.method.Call([]reflect.Value{reflect.ValueOf(example), fn})
	inf, _ = out[0].Interface().(cache.SharedIndexInformer)
	return inf, nil
}

func (g factory) wake(db *boltstore.DB, o Options, example runtime.Object) error {
	typ := reflect.TypeOf(example)
	if typ == nil || typ.Kind() != reflect.Pointer || typ.Elem().Kind() != reflect.Struct {
		return errNoType
	}
	path, err := find(g.newFunc.In(0), typ)
	if err != nil {
		return err
	}
	example = reflect.New(typ.Elem()).Interface().(runtime.Object)
	// The informer is made outside InformerFor, which holds the factory's lock. Making it
	// may call index functions, and these may ask the factory.
	var client reflect.Value
	var resync time.Duration
	_, err = g.informerFor(example, func(c reflect.Value, r time.Duration) (cache.SharedIndexInformer, error) {
		client, resync = c, r
		return nil, errLooked
	})
	if err == nil {
		return errAsked
	}
	inf, err := newInformer(db, o, path, client, resync, example)
	if err != nil {
		return err
	}
	got, err := g.informerFor(example, func(reflect.Value, time.Duration) (cache.SharedIndexInformer, error) {
		return inf, nil
	})
	if err == nil && got != cache.SharedIndexInformer(inf) { // somebody else was faster
		ended, end := context.WithCancel(context.Background())
		end()
		inf.RunWithContext(ended) // releases the source
		return errAsked
	}
	return err
}

var (
	errNoType = errors.New("the type is given as a pointer to it, such as &corev1.Pod{}")
	errLooked = errors.New("factory: there is no informer of the type")
	errAsked  = errors.New("the factory has an informer of it already: call Wake before anything asks for it, and once")
)

func newInformer(
	db *boltstore.DB, o Options, path path, client reflect.Value, resync time.Duration, example runtime.Object,
) (*informer.Informer, error) {
	if client.IsNil() {
		return nil, errors.New("the factory has no client")
	}
	lw := path.listWatch(client, *o.Filter, example)
	io := o.Informer
	io.ResyncPeriod = resync
	io.Indexers = cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	for name, fn := range o.Informer.Indexers {
		io.Indexers[name] = fn
	}
	return informer.NewSharedIndexInformer(db, lw, example, io)
}

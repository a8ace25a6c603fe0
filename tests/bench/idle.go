package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
	"github.com/kubewake/kubewake/tests/bench/measured"
)

// smallType is one of ten types with few objects in a cluster.
type smallType struct {
	resource string
	client   func(kubernetes.Interface) rest.Interface
	like     runtime.Object
	make     func(metav1.ObjectMeta) runtime.Object
}

func core(c kubernetes.Interface) rest.Interface { return c.CoreV1().RESTClient() }
func rbac(c kubernetes.Interface) rest.Interface { return c.RbacV1().RESTClient() }
func nets(c kubernetes.Interface) rest.Interface { return c.NetworkingV1().RESTClient() }

var smallTypes = []smallType{
	{"configmaps", core, &corev1.ConfigMap{}, func(m metav1.ObjectMeta) runtime.Object {
		return &corev1.ConfigMap{ObjectMeta: m, Data: map[string]string{"a": "b"}}
	}},
	{"secrets", core, &corev1.Secret{}, func(m metav1.ObjectMeta) runtime.Object {
		return &corev1.Secret{ObjectMeta: m}
	}},
	{"serviceaccounts", core, &corev1.ServiceAccount{}, func(m metav1.ObjectMeta) runtime.Object {
		return &corev1.ServiceAccount{ObjectMeta: m}
	}},
	{"limitranges", core, &corev1.LimitRange{}, func(m metav1.ObjectMeta) runtime.Object {
		return &corev1.LimitRange{ObjectMeta: m}
	}},
	{"resourcequotas", core, &corev1.ResourceQuota{}, func(m metav1.ObjectMeta) runtime.Object {
		return &corev1.ResourceQuota{ObjectMeta: m}
	}},
	{"services", core, &corev1.Service{}, func(m metav1.ObjectMeta) runtime.Object {
		return &corev1.Service{ObjectMeta: m,
			Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"a": "b"}}}
	}},
	{"roles", rbac, &rbacv1.Role{}, func(m metav1.ObjectMeta) runtime.Object { return &rbacv1.Role{ObjectMeta: m} }},
	{"rolebindings", rbac, &rbacv1.RoleBinding{}, func(m metav1.ObjectMeta) runtime.Object {
		return &rbacv1.RoleBinding{ObjectMeta: m,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: m.Name}}
	}},
	{"networkpolicies", nets, &networkingv1.NetworkPolicy{}, func(m metav1.ObjectMeta) runtime.Object {
		return &networkingv1.NetworkPolicy{ObjectMeta: m}
	}},
	{"endpointslices", func(c kubernetes.Interface) rest.Interface {
		return c.DiscoveryV1().RESTClient()
	}, &discoveryv1.EndpointSlice{}, func(m metav1.ObjectMeta) runtime.Object {
		return &discoveryv1.EndpointSlice{ObjectMeta: m, AddressType: discoveryv1.AddressTypeIPv4}
	}},
}

// smallObjects is how many of each small type there are.
const smallObjects = 25

// makeSmall creates the small objects.
func makeSmall(ctx context.Context, client kubernetes.Interface) error {
	for _, t := range smallTypes {
		for i := range smallObjects {
			obj := t.make(metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("small-%02d", i),
				Labels: map[string]string{"app": "small"}})
			post := t.client(client).Post().Namespace("default").Resource(t.resource).Body(obj)
			if err := post.Do(ctx).Error(); err != nil {
				return fmt.Errorf("create %s: %w", t.resource, err)
			}
		}
	}
	return nil
}

// smallCaches runs a program with ten informers.
func smallCaches(p *measured.Program, client kubernetes.Interface) error {
	var db *boltstore.DB
	var err error
	if p.Kind == kubewake {
		if db, err = boltstore.Open(p.DB, boltstore.Options{}); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	var wait []cache.DoneChecker
	for _, t := range smallTypes {
		var lw cache.ListerWatcher = cache.NewListWatchFromClient(t.client(client), t.resource, "", fields.Everything())
		var inf cache.SharedIndexInformer
		if db == nil {
			lw = cache.ToListWatcherWithWatchListSemantics(lw.(*cache.ListWatch), client)
			inf = cache.NewSharedIndexInformer(lw, t.like, 0, cache.Indexers{})
		} else if inf, err = informer.NewSharedIndexInformer(db, lw, t.like,
			informer.Options{Reflector: reflector.Options{Confirm: reflector.Confirm(p.Confirm)}}); err != nil {
			return err
		}
		reg, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{})
		if err != nil {
			return err
		}
		wait = append(wait, reg.HasSyncedChecker())
		running.Go(func() { inf.RunWithContext(ctx) })
	}
	for _, c := range wait {
		<-c.Done()
	}
	r := report{Synced: time.Since(p.Started)}
	if p.Mode == fill {
		cancel()
		running.Wait()
		if err := db.Close(); err != nil {
			return err
		}
		return measured.Tell(r)
	}
	time.Sleep(measured.Settle)
	r.Traffic = p.Wire.Read()
	return measured.Tell(r)
}

// idleRow has the times of starts over the same idle objects.
type idleRow struct {
	name                  string
	auto, bookmark, stock []report
}

// runIdle measures when programs have synced if none of their objects has changed, and
// returns its table.
func runIdle(ctx context.Context, o options) (text string, err error) {
	b, err := newBench(ctx, o)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := makeSmall(ctx, b.pods.client); err != nil {
		return "", err
	}
	var rows []idleRow
	row, err := b.idleRow(ctx, fmt.Sprintf("ten small types, %d objects each", smallObjects), 0)
	if err != nil {
		return "", err
	}
	rows = append(rows, row)
	for _, n := range o.sizes {
		if _, err := b.pods.grow(ctx, n); err != nil {
			return "", err
		}
		if row, err = b.idleRow(ctx, thousands(n)+" pods", n); err != nil {
			return "", err
		}
		rows = append(rows, row)
	}
	return idleText(rows, machine(b.pods.version), b.pairs), nil
}

// idleRow measures rounds of three starts. n is the number of pods, 0 for the small
// types.
func (b *bench) idleRow(ctx context.Context, name string, n int) (idleRow, error) {
	r := idleRow{name: name}
	start := func(k kind, m mode, c reflector.Confirm) (report, error) {
		if m == restart {
			if err := b.pods.writeOther(ctx); err != nil {
				return report{}, err
			}
		}
		p, err := b.launch(ctx, spec{Kind: k, Mode: m, Host: b.server.Config().Host, Pods: n, Types: n == 0,
			Confirm: int(c)})
		if err != nil {
			return report{}, err
		}
		var got report
		if err := p.next(&got); err != nil {
			return got, errors.Join(err, p.end())
		}
		return got, p.end()
	}
	if _, err := start(kubewake, fill, reflector.ConfirmAuto); err != nil {
		return r, err
	}
	// After the first start the file has the size that it has seen.
	if _, err := start(kubewake, restart, reflector.ConfirmAuto); err != nil {
		return r, err
	}
	for range b.pairs {
		for _, of := range []struct {
			kind    kind
			confirm reflector.Confirm
			into    *[]report
		}{{kubewake, reflector.ConfirmAuto, &r.auto}, {stock, 0, &r.stock},
			{kubewake, reflector.ConfirmBookmark, &r.bookmark}} {
			got, err := start(of.kind, restart, of.confirm)
			if err != nil {
				return r, err
			}
			*of.into = append(*of.into, got)
		}
		i := len(r.auto) - 1
		progress("%s: synced after %v, client-go %v, by bookmark %v", name, r.auto[i].Synced, r.stock[i].Synced,
			r.bookmark[i].Synced)
	}
	return r, nil
}

// idleText is the table.
func idleText(rows []idleRow, machine string, rounds int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Machine: %s.\nMedians of %d rounds; the worst in brackets; the ratio is the median of the "+
		"rounds' ratios.\n", machine, rounds)
	b.WriteString("\n| idle objects | client-go: HasSynced | bodies | `ConfirmAuto`: HasSynced | ratio | bodies | " +
		"`ConfirmBookmark`: HasSynced | bodies |\n|---|---:|---:|---:|---:|---:|---:|---:|\n")
	of := func(reports []report, figure func(report) float64, u unit) (string, float64) {
		var all []float64
		worst := 0.0
		for _, r := range reports {
			all = append(all, figure(r))
			worst = max(worst, figure(r))
		}
		return u(median(all)), worst
	}
	for _, r := range rows {
		var ratios []float64
		for i := range r.auto {
			ratios = append(ratios, synced(r.auto[i])/synced(r.stock[i]))
		}
		cell := func(reports []report) string {
			m, worst := of(reports, synced, duration)
			return fmt.Sprintf("%s (%s)", m, duration(worst))
		}
		sent := func(reports []report) string { m, _ := of(reports, bodies, size); return m }
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", r.name, cell(r.stock), sent(r.stock),
			cell(r.auto), ratio(median(ratios)), sent(r.auto), cell(r.bookmark), sent(r.bookmark))
	}
	return b.String()
}

package apifile

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

func (p *program) selection() (kubeapi.Selection, string) {
	sel := kubeapi.Selection{Labels: labels.Everything(), Fields: fields.Everything()}
	path := "/api/v1/configmaps?"
	if p.rnd.IntN(2) == 0 {
		sel.Namespace = []string{"a", "ab", "b"}[p.rnd.IntN(3)]
		path = "/api/v1/namespaces/" + sel.Namespace + "/configmaps?"
	}
	if p.rnd.IntN(2) == 0 {
		text := []string{"app=p", "!app", "app in (p,q),tier=p", "tier!=q", "own"}[p.rnd.IntN(5)]
		var err error
		sel.Labels, err = labels.Parse(text)
		p.must(err)
		path += "labelSelector=" + url.QueryEscape(text)
	}
	if p.rnd.IntN(4) == 0 {
		text := []string{"metadata.name=x", "metadata.name!=x", "metadata.namespace=a"}[p.rnd.IntN(3)]
		var err error
		sel.Fields, err = fields.ParseSelector(text)
		p.must(err)
		path += "&fieldSelector=" + url.QueryEscape(text)
	}
	return sel, path
}

func matches(sel kubeapi.Selection, o *corev1.ConfigMap) bool {
	return (sel.Namespace == "" || sel.Namespace == o.Namespace) && sel.Labels.Matches(labels.Set(o.Labels)) &&
		sel.Fields.Matches(fields.Set{"metadata.name": o.Name, "metadata.namespace": o.Namespace})
}

func selected(sel kubeapi.Selection, st state) (all []string) {
	for _, key := range slices.Sorted(maps.Keys(st.objects)) {
		if o := st.objects[key]; matches(sel, o) {
			all = append(all, key+"@"+rendered(o.ResourceVersion, o.Labels))
		}
	}
	return all
}

// of says whether objects are those of a state of a version.
func (p *program) of(version int, sel kubeapi.Selection, got []string) bool {
	for _, st := range p.past {
		if st.version == version && slices.Equal(selected(sel, st), got) {
			return true
		}
	}
	return false
}

func (p *program) ask(path string) (code int, got []string, version int) {
	a := ask(p.T, New(p.db, Options{}), http.MethodGet, path)
	meta, _ := a.object.Object["metadata"].(map[string]any)
	v, _ := meta["resourceVersion"].(string)
	version, _ = strconv.Atoi(v)
	items, _ := a.object.Object["items"].([]any)
	for _, item := range items {
		m := item.(map[string]any)["metadata"].(map[string]any)
		l := map[string]string{}
		if all, ok := m["labels"].(map[string]any); ok {
			for k, v := range all {
				l[k] = v.(string)
			}
		}
		got = append(got, fmt.Sprint(m["namespace"], "/", m["name"], "@", rendered(m["resourceVersion"], l)))
	}
	return a.code, got, version
}

// present compares a list with the model.
func (p *program) present() {
	sel, path := p.selection()
	code, got, version := p.ask(path)
	want := selected(sel, p.now)
	if code != 200 || !slices.Equal(got, want) || version != p.now.version {
		p.Errorf("%s: %d, at %d not %d\n%v\nnot\n%v", path, code, version, p.now.version, got, want)
	}
}

func (p *program) exact() {
	if len(p.past) == 0 || !p.whole {
		return
	}
	st := p.past[p.rnd.IntN(len(p.past))]
	sel, path := p.selection()
	code, got, version := p.ask(fmt.Sprintf("%s&resourceVersion=%d&resourceVersionMatch=Exact", path, st.version))
	p.did("exact %d: %d", st.version, code)
	switch {
	case code == 410:
		p.counts["exact-410"]++
	case code != 200 || version != st.version || !p.of(version, sel, got):
		p.Errorf("%s exactly at %d: %d at %d\n%v", path, st.version, code, version, got)
	}
}

func (p *program) storage() *storage {
	h := New(p.db, Options{}).(*handler)
	states, err := p.db.States()
	p.must(err)
	return &storage{handler: h, kinds: h.kindsOf(states), header: http.Header{}}
}

// begin begins a client: a list, then a watch.
func (p *program) begin() {
	if !p.whole || len(p.watches) > 8 {
		return
	}
	sel, path := p.selection()
	_, got, version := p.ask(path)
	w := &watching{sel: sel, cache: map[string]string{}, last: version}
	for _, text := range got {
		key, of, _ := strings.Cut(text, "@")
		w.cache[key] = of
	}
	p.did("begin %s at %d", path, version)
	p.watches = append(p.watches, w)
}

// follow brings a client up to date.
func (p *program) follow() {
	if len(p.watches) == 0 {
		return
	}
	i := p.rnd.IntN(len(p.watches))
	w := p.watches[i]
	drop := func(why string) {
		p.did("watch-ends %s", why)
		p.counts["watch-ends-"+why]++
		p.watches = slices.Delete(p.watches, i, i+1)
	}
	if w.w == nil || p.rnd.IntN(3) == 0 {
		if w.stale {
			drop("stale")
			return
		}
		st := p.storage()
		var err error
		w.w, err = st.Watch(p.Context(), st.kinds[0].Type,
			kubeapi.WatchQuery{Selection: w.sel, Version: uint64(w.last)})
		if err != nil {
			drop("begin")
			if strings.Contains(err.Error(), "too old") || !p.whole {
				return
			}
			p.Errorf("a watch from %d: %v", w.last, err)
			return
		}
		p.did("watch from %d", w.last)
	}
	for {
		b, err := w.w.Next(p.Context())
		if err != nil {
			drop("next")
			if !strings.Contains(err.Error(), "too old") && p.whole {
				p.Errorf("the watch ends: %v", err)
			}
			return
		}
		if b.Mark || b.Each == nil {
			if int(b.Version) < w.last {
				p.Errorf("a bookmark of %d after %d", b.Version, w.last)
			}
			if b.Mark || p.rnd.IntN(2) == 0 {
				w.last = int(b.Version)
			}
			if b.Mark {
				continue
			}
			break
		}
		stop := p.rnd.IntN(12) == 0 // the connection breaks
		for c, err := range b.Each {
			if err != nil {
				drop("each")
				if !strings.Contains(err.Error(), "too old") {
					p.Errorf("the watch ends: %v", err)
				}
				return
			}
			was, is := w.sel.Matches(c.Prev), w.sel.Matches(c.Cur)
			at := int(c.Version)
			switch {
			case is:
				o := c.Cur
				w.cache[o.Namespace+"/"+o.Name] = rendered(o.Version, o.Labels)
				at = int(o.Version)
			case was:
				delete(w.cache, c.Prev.Namespace+"/"+c.Prev.Name)
				if c.Final != nil && c.Cur == nil {
					at = int(c.Final.Version)
				}
			default:
				continue
			}
			w.last = at
			p.did("event %v at %d", is, at)
			if stop && p.rnd.IntN(3) == 0 {
				w.w = nil
				p.did("broken at %d", w.last)
				return
			}
		}
	}
	want := map[string]string{}
	for _, text := range selected(w.sel, p.now) {
		key, of, _ := strings.Cut(text, "@")
		want[key] = of
	}
	if !maps.Equal(w.cache, want) {
		p.Errorf("a watcher has\n%v\nnot\n%v\n%+v", w.cache, want, w.sel)
	}
	p.did("followed to %d", w.last)
}

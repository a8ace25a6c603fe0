package kubesim

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"

	"github.com/kubewake/kubewake/internal/podgen"
)

func TestTypedClients(t *testing.T) {
	for name, contentType := range encodings {
		t.Run(name, func(t *testing.T) {
			s := start(t, Options{})
			c := clientset(t, s, contentType)
			ctx := t.Context()
			pods := c.CoreV1().Pods("default")

			want := podgen.New(1).Pod(0)
			want.Namespace = "default"
			created := must(pods.Create(ctx, want, metav1.CreateOptions{}))(t)
			if created.UID == "" || created.UID == want.UID || created.ResourceVersion != "5" {
				t.Errorf("created with uid %q, resourceVersion %q", created.UID, created.ResourceVersion)
			}
			got := must(pods.Get(ctx, want.Name, metav1.GetOptions{}))(t)
			if !equality.Semantic.DeepEqual(got.Spec, want.Spec) ||
				!equality.Semantic.DeepEqual(got.ManagedFields, want.ManagedFields) {
				t.Error("the stored pod differs from the created one")
			}
			list := must(pods.List(ctx, metav1.ListOptions{}))(t)
			if len(list.Items) != 1 || !equality.Semantic.DeepEqual(list.Items[0], *got) ||
				list.ResourceVersion != "5" {
				t.Errorf("list at %s has %d items, or another pod", list.ResourceVersion, len(list.Items))
			}

			got.Annotations["x"] = "1"
			updated := must(pods.Update(ctx, got, metav1.UpdateOptions{}))(t)
			if again := must(pods.Update(ctx, updated, metav1.UpdateOptions{}))(t); again.ResourceVersion != "6" {
				t.Errorf("an update without a change made version %s, want 6", again.ResourceVersion)
			}
			if _, err := pods.Update(ctx, got, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("update of an old version: %v, want a conflict", err)
			}
			patched := must(pods.Patch(ctx, want.Name, types.MergePatchType,
				[]byte(`{"metadata":{"annotations":{"x":null,"y":"2"}}}`), metav1.PatchOptions{}))(t)
			if _, ok := patched.Annotations["x"]; ok || patched.Annotations["y"] != "2" ||
				patched.ResourceVersion != "7" {
				t.Errorf("patched to %v at %s", patched.Annotations, patched.ResourceVersion)
			}
			patched.Status.Phase = corev1.PodFailed
			must(pods.UpdateStatus(ctx, patched, metav1.UpdateOptions{}))(t)

			check(t, pods.Delete(ctx, want.Name, metav1.DeleteOptions{}))
			_, err := pods.Get(ctx, want.Name, metav1.GetOptions{})
			if st := statusOf(t, err); st.Code != 404 || st.Message != `pods "`+want.Name+`" not found` ||
				st.Details.Kind != "pods" {
				t.Errorf("get after delete: %+v", st)
			}
		})
	}
}

func TestWriteErrors(t *testing.T) {
	s := start(t, Options{})
	c := clientset(t, s, "")
	ctx := t.Context()
	cms := c.CoreV1().ConfigMaps("default")
	cm := must(cms.Create(ctx, configMap("a"), metav1.CreateOptions{}))(t)
	other := types.UID("x")
	oldRV := "1"
	for _, tc := range []struct {
		name    string
		call    func() error
		code    int32
		reason  metav1.StatusReason
		message string
	}{
		{"create existing", func() error {
			_, err := cms.Create(ctx, configMap("a"), metav1.CreateOptions{})
			return err
		}, 409, metav1.StatusReasonAlreadyExists, `configmaps "a" already exists`},
		{"create in missing namespace", func() error {
			_, err := c.CoreV1().ConfigMaps("none").Create(ctx,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
			return err
		}, 404, metav1.StatusReasonNotFound, `namespaces "none" not found`},
		{"create in another namespace than the URL's", func() error {
			_, err := c.CoreV1().ConfigMaps("kube-system").Create(ctx, configMap("a"), metav1.CreateOptions{})
			return err
		}, 400, metav1.StatusReasonBadRequest,
			"the namespace of the provided object does not match the namespace sent on the request"},
		{"create without a name", func() error {
			_, err := cms.Create(ctx, configMap(""), metav1.CreateOptions{})
			return err
		}, 422, metav1.StatusReasonInvalid,
			`ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required`},
		{"create with a resourceVersion", func() error {
			cm := configMap("b")
			cm.ResourceVersion = "5"
			_, err := cms.Create(ctx, cm, metav1.CreateOptions{})
			return err
		}, 500, "", "resourceVersion should not be set on objects to be created"},
		{"update missing", func() error {
			_, err := cms.Update(ctx, configMap("none"), metav1.UpdateOptions{})
			return err
		}, 404, metav1.StatusReasonNotFound, `configmaps "none" not found`},
		{"update of another object", func() error {
			cm := configMap("a")
			cm.UID = other
			_, err := cms.Update(ctx, cm, metav1.UpdateOptions{})
			return err
		}, 409, metav1.StatusReasonConflict,
			`Operation cannot be fulfilled on configmaps "a": StorageError: invalid object, Code: 4, ` +
				`Key: /registry/configmaps/default/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: x, UID in object meta: ` + string(cm.UID)},
		{"patch of an old version", func() error {
			_, err := cms.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"resourceVersion":"1"}}`),
				metav1.PatchOptions{})
			return err
		}, 409, metav1.StatusReasonConflict,
			`Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to the latest version and try again`},
		{"delete missing", func() error {
			return cms.Delete(ctx, "none", metav1.DeleteOptions{})
		}, 404, metav1.StatusReasonNotFound, `configmaps "none" not found`},
		{"delete of an old version", func() error {
			was := &metav1.Preconditions{ResourceVersion: &oldRV}
			return cms.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: was})
		}, 409, metav1.StatusReasonConflict,
			`Operation cannot be fulfilled on ConfigMap "a": the ResourceVersion in the precondition (1) does not match ` +
				`the ResourceVersion in record (5). The object might have been modified`},
		{"update of a custom resource without its version", func() error {
			w := widget("w")
			check(t, s.Create(w.DeepCopy()))
			widgets := must(dynamic.NewForConfig(s.RESTConfig()))(t).Resource(widgetGVR).Namespace("default")
			_, err := widgets.Update(ctx, w, metav1.UpdateOptions{})
			return err
		}, 422, metav1.StatusReasonInvalid,
			`widgets.example.com "w" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update`},
		{"strategic merge patch", func() error {
			_, err := cms.Patch(ctx, "a", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{})
			return err
		}, 415, metav1.StatusReasonUnsupportedMediaType, "415: Unsupported Media Type"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st := statusOf(t, tc.call())
			if st.Code != tc.code || st.Reason != tc.reason || st.Message != tc.message {
				t.Errorf("got  %d %s %q\nwant %d %s %q", st.Code, st.Reason, st.Message, tc.code, tc.reason, tc.message)
			}
		})
	}
}

func TestCustomResources(t *testing.T) {
	s := start(t, Options{})
	ctx := t.Context()
	c := must(dynamic.NewForConfig(s.RESTConfig()))(t).Resource(widgetGVR).Namespace("default")
	w := must(c.Create(ctx, widget("w"), metav1.CreateOptions{}))(t)
	check(t, unstructured.SetNestedField(w.Object, int64(4), "spec", "size"))
	w = must(c.Update(ctx, w, metav1.UpdateOptions{}))(t)
	list := must(c.List(ctx, metav1.ListOptions{}))(t)
	if len(list.Items) != 1 || !equality.Semantic.DeepEqual(list.Items[0], *w) || list.GetKind() != "WidgetList" {
		t.Errorf("list %s has %v, want %v", list.GetKind(), list.Items, w)
	}
	check(t, c.Delete(ctx, "w", metav1.DeleteOptions{}))

	check(t, s.Create(widget("x")))
	resp, _ := get(t, s, "/apis/example.com/v1/widgets", "Accept", mediaProto+",application/json")
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || got != mediaJSON {
		t.Errorf("protobuf or JSON: %s %s, want JSON", resp.Status, got)
	}
	resp, body := get(t, s, "/apis/example.com/v1/widgets", "Accept", mediaProto)
	st := &metav1.Status{}
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, st); err != nil ||
		resp.StatusCode != 406 || st.Reason != "NotAcceptable" {
		t.Errorf("protobuf only: %s, %+v, %v", resp.Status, st, err)
	}
}

func TestMetadataClient(t *testing.T) {
	s := start(t, Options{})
	ctx := t.Context()
	pod := podgen.New(1).Pod(0)
	pod.Namespace = "default"
	check(t, s.Create(pod))
	check(t, s.Create(widget("w")))
	c := must(metadata.NewForConfig(s.RESTConfig()))(t)
	w := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "w", Namespace: "default",
		ResourceVersion: "6"}}
	for gvr, want := range map[string]*metav1.ObjectMeta{"pods": &pod.ObjectMeta, "widgets": &w.ObjectMeta} {
		res := corev1.SchemeGroupVersion.WithResource(gvr)
		if gvr == "widgets" {
			res = widgetGVR
		}
		list := must(c.Resource(res).List(ctx, metav1.ListOptions{}))(t)
		if len(list.Items) != 1 || list.Items[0].Kind != "" && list.Items[0].Kind != "PartialObjectMetadata" {
			t.Fatalf("%s: %+v", gvr, list)
		}
		got := must(c.Resource(res).Namespace("default").Get(ctx, want.Name, metav1.GetOptions{}))(t)
		if got.Name != want.Name || got.ResourceVersion != want.ResourceVersion ||
			len(got.ManagedFields) != len(want.ManagedFields) {
			t.Errorf("%s: got %+v", gvr, got.ObjectMeta)
		}
		if !equality.Semantic.DeepEqual(list.Items[0].ObjectMeta, got.ObjectMeta) {
			t.Errorf("%s: the list shows %+v", gvr, list.Items[0].ObjectMeta)
		}
	}
	resp, body := get(t, s, "/api/v1/pods", "Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	if resp.StatusCode != 406 {
		t.Errorf("one object's metadata asked of a list: %s %s", resp.Status, body)
	}
}

func TestInProcessObjects(t *testing.T) {
	s := New(Options{InitialRV: 100})
	defer s.Close()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "anywhere", GenerateName: "d-"}}
	check(t, s.Create(d))
	if d.ResourceVersion != "105" || len(d.Name) != len("d-")+5 || d.UID == "" {
		t.Errorf("created as %+v", d.ObjectMeta)
	}
	d.Labels = map[string]string{"a": "b"}
	check(t, s.Update(d))
	got := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "anywhere", Name: d.Name,
		Annotations: map[string]string{"stale": "x"}}}
	check(t, s.Get(got))
	if !equality.Semantic.DeepEqual(got, d) {
		t.Errorf("got %+v, want %+v", got, d)
	}
	list, rev, err := s.List(&appsv1.Deployment{})
	if err != nil || rev != 106 || s.Revision() != 106 || len(list) != 1 ||
		!equality.Semantic.DeepEqual(list[0], Object(d)) {
		t.Errorf("list: %v at %d, %v", list, rev, err)
	}
	check(t, s.Delete(d))
	if err := s.Get(got); !apierrors.IsNotFound(err) {
		t.Errorf("get after delete: %v", err)
	}
}

func TestDiscovery(t *testing.T) {
	s := start(t, Options{})
	c := must(discovery.NewDiscoveryClientForConfig(s.RESTConfig()))(t)
	groups, lists, err := c.ServerGroupsAndResources()
	check(t, err)
	served := map[string]string{}
	for _, l := range lists {
		for _, r := range l.APIResources {
			served[r.Name] = l.GroupVersion
		}
	}
	if len(groups) != 3 || len(served) != 8 || served["widgets"] != "example.com/v1" ||
		served["deployments"] != "apps/v1" || served["pods"] != "v1" {
		t.Errorf("%d groups, resources %v", len(groups), served)
	}
	if v := must(c.ServerVersion())(t); v.GitVersion != "v1.36.3" {
		t.Errorf("version %s", v)
	}
	for path, want := range map[string]int{
		"/readyz": 200, "/healthz": 200, "/livez": 200, "/apis/apps": 200, "/apis/none": 404, "/apis/none.com/v1": 404,
		"/apis/none.com/v1/foos": 404, "/api/v1/foos": 404, "/nothing": 404, "/api/v1/nodes/x/proxy": 404,
		"/api/v1/configmaps/c": 404, "/api/v1/namespaces/default/nodes": 404,
	} {
		if resp, body := get(t, s, path); resp.StatusCode != want {
			t.Errorf("%s: %s %s, want %d", path, resp.Status, body, want)
		}
	}
}

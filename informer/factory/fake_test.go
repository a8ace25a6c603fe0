package factory_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	examplev1 "github.com/kubewake/kubewake/informer/factory/testdata/example/api/example/v1"
	"github.com/kubewake/kubewake/informer/factory/testdata/example/clientset/versioned/fake"
	typedv1 "github.com/kubewake/kubewake/informer/factory/testdata/example/clientset/versioned/typed/example/v1"
	"github.com/kubewake/kubewake/informer/factory/testdata/example/informers/externalversions"
	"github.com/kubewake/kubewake/informer/informertest"
)

// earlier is a fake clientset with clients of an earlier code-generator: they do not say what
// they list.
type earlier struct{ *fake.Clientset }

func (e earlier) ExampleV1() typedv1.ExampleV1Interface {
	return earlierGroup{e.Clientset.ExampleV1()}
}

type earlierGroup struct{ typedv1.ExampleV1Interface }

func (e earlierGroup) Widgets(namespace string) typedv1.WidgetInterface {
	return struct{ typedv1.WidgetInterface }{e.ExampleV1Interface.Widgets(namespace)}
}

// TestEarlierFake: the types of a fake wake, whichever code-generator wrote it.
func TestEarlierFake(t *testing.T) {
	client := earlier{fake.NewSimpleClientset(&examplev1.Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "web",
		Name: "a"}}, &examplev1.Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "b"}})}
	f := externalversions.NewSharedInformerFactoryWithOptions(client, 0, externalversions.WithNamespace("web"))
	informertest.Wake(t, f, &examplev1.Widget{})
	widgets := f.Example().V1().Widgets()
	ctx, stop := context.WithCancel(t.Context())
	f.StartWithContext(ctx)
	f.WaitForCacheSync(ctx.Done())
	if keys := widgets.Informer().GetStore().ListKeys(); len(keys) != 1 || keys[0] != "web/a" {
		t.Errorf("keys %q", keys)
	}
	if _, err := client.ExampleV1().Widgets("web").Create(ctx,
		&examplev1.Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "c"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new one", func() bool { _, err := widgets.Lister().Widgets("web").Get("c"); return err == nil })
	stop()
	f.Shutdown()
}

package apiserver

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// widgets is a custom resource that keeps all fields of its objects.
const widgets = `{
	"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
	"metadata": {"name": "widgets.example.com"},
	"spec": {
		"group": "example.com", "scope": "Namespaced",
		"names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
		"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
			"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]
	}
}`

// InstallWidgets makes the server serve the custom resource widgets.example.com/v1,
// namespaced and without a schema, and waits until it does. Installing it twice is not an
// error.
func (s *Server) InstallWidgets(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		return err
	}
	err = client.RESTClient().Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").
		SetHeader("Content-Type", "application/json").Body([]byte(widgets)).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 30*time.Second, true,
		func(ctx context.Context) (bool, error) {
			err := client.RESTClient().Get().AbsPath("/apis/example.com/v1/widgets").Do(ctx).Error()
			if apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) {
				return false, nil
			}
			return err == nil, err
		})
}

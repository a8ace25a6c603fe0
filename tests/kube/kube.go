//go:build pin

// Package kube pins the kube-apiserver and the kubectl that the end-to-end tests
// run: a module of its own, because k8s.io/kubernetes can only be required
// together with a replace for each of its staging modules.
package kube

import (
	_ "k8s.io/kubectl/pkg/cmd"
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

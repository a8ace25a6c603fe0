package kubeapi

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ShortNames are kubectl's short names of built-in types, for use without a server.
var ShortNames = map[string]schema.GroupResource{
	"cm": {Resource: "configmaps"}, "cj": {Group: "batch", Resource: "cronjobs"}, "cs": {Resource: "componentstatuses"},
	"csr": {Group: "certificates.k8s.io", Resource: "certificatesigningrequests"},
	"ip":  {Group: "networking.k8s.io", Resource: "ipaddresses"},
	"rc":  {Resource: "replicationcontrollers"}, "vac": {Group: "storage.k8s.io", Resource: "volumeattributesclasses"},
	"crds":   {Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	"crd":    {Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	"deploy": {Group: "apps", Resource: "deployments"}, "ds": {Group: "apps", Resource: "daemonsets"},
	"ep": {Resource: "endpoints"}, "ev": {Resource: "events"},
	"hpa": {Group: "autoscaling", Resource: "horizontalpodautoscalers"},
	"ing": {Group: "networking.k8s.io", Resource: "ingresses"}, "limits": {Resource: "limitranges"},
	"netpol": {Group: "networking.k8s.io", Resource: "networkpolicies"}, "no": {Resource: "nodes"},
	"ns":  {Resource: "namespaces"},
	"pc":  {Group: "scheduling.k8s.io", Resource: "priorityclasses"},
	"pdb": {Group: "policy", Resource: "poddisruptionbudgets"}, "po": {Resource: "pods"},
	"pv": {Resource: "persistentvolumes"}, "pvc": {Resource: "persistentvolumeclaims"},
	"quota": {Resource: "resourcequotas"}, "rs": {Group: "apps", Resource: "replicasets"},
	"sa": {Resource: "serviceaccounts"}, "sc": {Group: "storage.k8s.io", Resource: "storageclasses"},
	"sts": {Group: "apps", Resource: "statefulsets"}, "svc": {Resource: "services"},
}

// ShortNamesOf returns the short names of a built-in type, sorted.
func ShortNamesOf(r schema.GroupResource) []string {
	names := maps.Clone(ShortNames)
	maps.DeleteFunc(names, func(_ string, of schema.GroupResource) bool { return of != r })
	return slices.Sorted(maps.Keys(names))
}

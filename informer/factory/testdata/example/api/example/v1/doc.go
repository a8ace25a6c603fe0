// Package v1 is an API of another project. The packages beside it are what
// code-generator 0.37.2 makes of it: see ../../../generate.
//
// +k8s:deepcopy-gen=package
// +groupName=example.com
package v1

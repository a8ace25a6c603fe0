//go:build pin

// Package etcd pins the etcd that the end-to-end tests run.
package etcd

import _ "go.etcd.io/etcd/server/v3/etcdmain"

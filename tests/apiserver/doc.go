// Package apiserver runs a real kube-apiserver on an etcd of its own, on
// loopback, for the end-to-end tests and the benchmarks.
//
// It can do to the server what a cluster does to it: stop and start again,
// which makes every resume of a watch too old; and go back to an earlier state
// of etcd, which makes resource versions repeat. It records every request that
// was sent, so that a test can state what a client did not ask for.
//
// The binaries come from "make assets". Nothing outlives the test: each
// process has its own group and dies with the program that started it.
package apiserver

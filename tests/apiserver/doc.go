// Package apiserver runs a real kube-apiserver on an etcd of its own, on
// loopback, for the end-to-end tests and the benchmarks.
//
// It can make the server go through the events of a real cluster: stop and start again,
// after which every resume of a watch is too old; and go back to an earlier state of
// etcd, after which resource versions repeat. It records every request, so a test can
// state which ones a client did not send.
//
// The binaries come from "make assets". Nothing outlives the test: each
// process has its own group and dies with the program that started it.
package apiserver

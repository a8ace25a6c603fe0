// Bench measures a program on kubewake beside one on client-go's own informer: the cost
// of a restart, against a real kube-apiserver with its etcd; the time to sync if nothing
// has changed; and how fast and how late a watch's events are handled, from a server that
// sends recorded ones. It also measures reads through a file's API beside the same reads
// from the server.
//
// The program starts itself again as the programs it measures, one at a time, in pairs
// (kubewake, client-go, kubewake, client-go, …), so that other load on the machine
// affects both. It prints its tables, and writes them between the markers of
// figures.md; docs/benchmarks.md says what they mean.
//
// Growth compares more programs, at sizes that lie far apart: starts, reads, files, memory
// and repairs. Programs that alone need a
// dependency, such as a SQL engine or controller-runtime, are built separately. So is the
// program that draws. They share package measured.
//
// cd tests && go run ./bench [-what restart,idle,stream,api,growth,day] [-parts
// speed,latency,work,bytes,idle] [-sizes 1000,5000] [-pairs 3] [-out file] [-save file] [-draw
// file] [-profile folder]
package main

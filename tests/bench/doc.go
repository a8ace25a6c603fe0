// Bench measures a program on kubewake beside one on client-go's own informer:
// what a restart costs, against a real kube-apiserver with its etcd, when it has
// synced where nothing has happened, and how a watch's stream of events is taken, from a
// server that sends recorded ones. It measures reads through a file's API beside the same
// of the server.
//
// The program starts itself again as the programs it measures, one at a time,
// in pairs (kubewake, client-go, kubewake, client-go, …), so that whatever else
// the machine does meets both. It prints its tables, and writes them between
// the markers of docs/benchmarks.md.
//
// Growth compares more programs, at sizes that lie far apart. Those that need what
// no other does, a SQL engine or controller-runtime, are programs of their own. So is
// the one that draws. They share package measured.
//
//	cd tests && go run ./bench [-what restart,idle,stream,api,growth,day] [-parts speed,latency,work,bytes,idle] [-sizes 1000,5000,20000] [-pairs 3] [-out file] [-save file] [-draw file] [-profile folder]
package main

package measured

import (
	"encoding/json"
	"os"
	"time"
)

// SpecEnv names the environment variable with the spec of a measured program, as JSON.
const SpecEnv = "KUBEWAKE_BENCH_SPEC"

// Settle is how long after the sync the memory is read.
const Settle = 3 * time.Second

// MarkAnnotation is the annotation that a change of a pod sets to the name of its round.
const MarkAnnotation = "bench.kubewake.test/round"

// Kind is the kind of cache that a program has.
type Kind string

// The kinds of caches.
const (
	Kubewake Kind = "kubewake"
	Stock    Kind = "client-go"
	Listed   Kind = "client-go, lists"
	Manager  Kind = "controller-runtime"
	SQLite   Kind = "SQLite"
	Idle     Kind = "none" // a client that has asked for one pod
	// Bookmark is Kubewake that confirms by a bookmark. Only its restarts differ.
	Bookmark Kind = "kubewake, bookmark"
	// InMemory is Kubewake with room for all objects in memory. Only its reads differ.
	InMemory Kind = "kubewake, in memory"
)

// Mode says what a program does.
type Mode string

// The modes.
const (
	Fill    Mode = "fill"    // syncs, and closes its file in order
	First   Mode = "first"   // syncs, settles, and closes its file in order
	Restart Mode = "restart" // syncs, settles, and ends as in a crash
	Live    Mode = "live"    // syncs, then waits for changes
	Reading Mode = "reading" // syncs, reads, and ends as in a crash
)

// Spec tells a program what to do.
type Spec struct {
	Kind    Kind
	Mode    Mode
	Host    string
	Token   string
	CA      []byte
	DB      string
	Key     string // a pod, to be read first
	Pods    int
	Changes int    // in live mode: how many pods will be marked
	Deletes int    // and how many deleted
	Mark    string // with this
	Started time.Time
	Limited bool   // to client-go's default rate of requests
	Types   bool   // ten informers over ten small types, in place of one over pods
	Confirm int    // a reflector.Confirm
	Objects int64  // kubewake's ObjectMemory in bytes, 0 for that of the environment
	Decoded bool   // kubewake leaves all of each page to the client to decode
	Profile string // prefix of the files to write profiles to
}

// Report is a program's report when it has synced. Durations are from the start of the
// process, except Open and FirstRead.
type Report struct {
	Open      time.Duration // Open took so long
	FirstRead time.Duration // from there to the first object read from the file
	Read      time.Duration
	Told      time.Duration // the handler has been told of all pods
	Synced    time.Duration
	Traffic   Traffic
	Memory    Memory
	FileSize  int64
	Reads     Reads         // only in mode Reading
	Processor time.Duration // of the whole life; noted by the parent
}

// LiveReport is the report of a program in live mode when it has been told all changes.
// All figures are since its Report.
type LiveReport struct {
	Told, LastCall         time.Time
	Expired, Watching      time.Time // told that the version is too old, and watching again
	Processor              time.Duration
	Allocated              int64 // bytes
	Adds, Updates, Deletes int
	Traffic                Traffic
	Memory                 Memory
}

// Tell writes a report for the program that has started this one.
func Tell(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }

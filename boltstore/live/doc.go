// Package live lets others read a file while this process has it open.
//
// bbolt's lock keeps other processes out of a file. So its owner can serve a unix socket
// beside it ([Serve]), to which [Dial] connects. It answers
//
//   - the Kubernetes API on the file, read-only, as package apifile does;
//   - the file's state and the owner's report: [Client.Status], /kubewake/status;
//   - a copy of the file as one commit left it: [Client.Snapshot], /kubewake/snapshot. What
//     the API does not have, such as an object's history, is read from that.
//
// HTTP/1.1 is spoken, too: curl --unix-socket FILE.sock http://file/api/v1/pods.
//
// The socket is for the same user and root, and the path for at most 98 bytes. No client can hold
// up the owner: no transaction is open while an answer is sent, and all is bounded.
package live

import "github.com/kubewake/kubewake/boltstore"

// Paths outside the API.
const (
	statusPath   = "/kubewake/status"
	snapshotPath = "/kubewake/snapshot"
)

// headerOptions has a request's apifile.Options as JSON. headerNone says in an answer of the API why
// there are no objects. In a request it asks for noneHere as the answer, if the file does not have
// the objects.
const (
	headerOptions = "Kubewake-Options"
	headerNone    = "Kubewake-None"

	noneHere  = "not kept"
	noneMoved = "moved"
)

// Status is the state of a file.
type Status struct {
	File    string            `json:"file"`
	Bytes   int64             `json:"bytes"`
	Sources []boltstore.State `json:"sources"`
	// SetAside are the files beside this one that could not be used.
	SetAside []boltstore.Aside `json:"setAside,omitempty"`
	// Owner is nil unless an owner answered.
	Owner *Owner `json:"owner,omitempty"`
}

// Owner is the process that has the file open.
type Owner struct {
	PID int `json:"pid"`
	// Error says why commits fail at the moment, "" if they succeed.
	Error string `json:"error,omitempty"`
	// Moved says why the owner's file is not the one at the path, "" if it is: see
	// boltstore.ErrMoved. The rest of the Status is then about the owner's file.
	Moved string `json:"moved,omitempty"`
	// Sources has the state of each source that the owner keeps up to date, by name.
	Sources map[string]string `json:"sources,omitempty"`
}

// StatusOf is the state of a file that this process has open.
func StatusOf(db *boltstore.DB) (Status, error) {
	states, err := db.States()
	return Status{File: db.Path(), Bytes: db.Size(), Sources: states, SetAside: db.Aside()}, err
}

package listing

import (
	"fmt"
	"strings"
)

// Facts are what package reflector has learned of a source's server for the next life.
// boltstore keeps them. They are comparable.
type Facts struct {
	Server Server `msgpack:"server"` // that has answered last
	// ServedForm is a sign of the form in which the server served the objects of the last
	// list, "" if unknown. If the server's minor version is newer than that of the program's
	// types, the sign begins with both, as in "1.38>1.37:".
	ServedForm string `msgpack:"form,omitempty"`
	// MetadataSize is how many bytes the metadata of an object takes in a list, 0 if unknown.
	MetadataSize uint64 `msgpack:"metadataSize,omitempty"`
	Listed       string `msgpack:"listed,omitempty"` // version of the last list, "" without one
	Moved        bool   `msgpack:"moved,omitempty"`  // an earlier list had another version
	// Stands: the server has changed something without moving the source's version. Then an
	// unchanged version does not show that nothing was missed. Examples are an object without
	// a version, a delete with no newer version, and other content under the same version.
	Stands bool `msgpack:"stands,omitempty"`
	// Restored: the server was restored to an earlier state, so the objects are of an earlier
	// timeline. Later the server's version may have overtaken theirs, so this stays until a
	// list of the new timeline is committed.
	Restored bool `msgpack:"restored,omitempty"`
	// Filtered: the program's list function leaves out what the server lists. A list that the
	// function has not made then shows nothing.
	Filtered bool `msgpack:"filtered,omitempty"`
}

// Moves says whether the source's versions are known to move with each change. A server may
// state the file's own version as its current one. Then nothing has changed, provided that
// they do: some servers' versions never move, such as those of constant objects, and others'
// not with every change. rv is the current version, as the server states it. They move if rv,
// or the version of a list before the last one, differs from the last list's.
func (f *Facts) Moves(rv string) bool {
	return !f.Stands && (f.Moved || f.Listed != "" && f.Listed != rv)
}

// LacksFields says that the server is newer than the k8s.io/api of the program that has listed
// the objects, so that typed objects lack fields; "" if that is not known.
func (f *Facts) LacksFields() string {
	both, _, newer := strings.Cut(f.ServedForm, ":")
	server, api, _ := strings.Cut(both, ">")
	if !newer {
		return ""
	}
	return fmt.Sprintf("the server is %s, and the program that listed the objects was built for %s; "+
		"fields that are newer are not in the file",
		server, api)
}

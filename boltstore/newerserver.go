package boltstore

import (
	"fmt"
	"strings"
)

// lacksFields is State.LacksFields. Objects that are not typed keep fields of any version.
func (m *sourceMeta) lacksFields() string {
	both, _, newer := strings.Cut(m.ServedForm, ":")
	server, api, _ := strings.Cut(both, ">")
	if !newer || m.Source.Form != FormTyped {
		return ""
	}
	return fmt.Sprintf("the server is %s, and the program that listed the objects was built for %s; "+
		"fields that are newer are not in the file",
		server, api)
}

// lacksFields warns, once, that the file lacks fields of the server's objects.
func (wr *warnings) lacksFields(m *sourceMeta) {
	why := m.lacksFields()
	if why == "" {
		return
	}
	wr.newerServer.Do(func() {
		wr.db.log().Info("Warning: the server is newer than this program; "+
			"build the program with a newer k8s.io/api to keep all fields",
			"file", wr.db.path, "reason", why)
	})
}

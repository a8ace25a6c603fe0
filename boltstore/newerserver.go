package boltstore

// lacksFields is State.LacksFields. Objects that are not typed keep fields of any version.
func (m *sourceMeta) lacksFields() string {
	if m.Source.Form != FormTyped {
		return ""
	}
	return m.Facts.LacksFields()
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

package boltstore

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
)

// Form says how a source's objects are represented in the program.
type Form string

// Forms that an informer's example object can have.
const (
	FormTyped        Form = "typed"
	FormUnstructured Form = "unstructured"
	FormMetadata     Form = "metadata"
)

// Source identifies what one informer mirrors. Two lists are the same source if and
// only if all fields are equal. A server's address is not part of it, since it may
// change while the objects stay the same. Cluster is a name that the caller gives; it
// is empty unless one file serves several clusters.
type Source struct {
	Cluster       string `msgpack:"cluster" json:"cluster,omitempty"`
	Group         string `msgpack:"group" json:"group,omitempty"`
	Version       string `msgpack:"version" json:"version"`
	Resource      string `msgpack:"resource" json:"resource"`
	Namespace     string `msgpack:"namespace" json:"namespace,omitempty"`
	LabelSelector string `msgpack:"labelSelector" json:"labelSelector,omitempty"`
	FieldSelector string `msgpack:"fieldSelector" json:"fieldSelector,omitempty"`
	ShardSelector string `msgpack:"shardSelector" json:"shardSelector,omitempty"`
	Form          Form   `msgpack:"form" json:"form"`
}

// ID is the name of the source's bucket: the first half of a SHA-256 over its
// fields, in hex.
func (s Source) ID() string {
	var buf []byte
	for _, f := range s.fields() {
		buf = binary.AppendUvarint(buf, uint64(len(f)))
		buf = append(buf, f...)
	}
	sum := sha256.Sum256(buf)
	return hex.EncodeToString(sum[:16])
}

// fields make up the ID. A further field, even an empty one, would give each source
// another ID, and all would be listed again: append it only where it is set.
func (s Source) fields() []string {
	return []string{s.Cluster, s.Group, s.Version, s.Resource, s.Namespace,
		s.LabelSelector, s.FieldSelector, s.ShardSelector, string(s.Form)}
}

// String names the source in the style of kubectl: "deployments.apps/v1 -n web -l
// app=x".
func (s Source) String() string {
	var b strings.Builder
	b.WriteString(s.Resource)
	if s.Group != "" {
		b.WriteString("." + s.Group)
	}
	b.WriteString("/" + s.Version)
	for _, f := range []struct{ flag, value string }{
		{" -n ", s.Namespace}, {" -l ", s.LabelSelector}, {" --field-selector ", s.FieldSelector},
		{" --shard-selector ", s.ShardSelector}, {" --cluster ", s.Cluster},
	} {
		if f.value != "" {
			b.WriteString(f.flag + f.value)
		}
	}
	if s.Form != FormTyped {
		b.WriteString(" (" + string(s.Form) + ")")
	}
	return b.String()
}

func (s Source) validate() error {
	switch {
	case s.Resource == "" || s.Version == "":
		return errors.New("boltstore: a source needs at least a version and a resource, such as v1 and pods")
	case s.Form != FormTyped && s.Form != FormUnstructured && s.Form != FormMetadata:
		return errors.New("boltstore: a source's form must be typed, unstructured or metadata")
	}
	return nil
}

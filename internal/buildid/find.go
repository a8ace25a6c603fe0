package buildid

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
)

// headSize is where other formats than ELF have the id: cmd/go looks at half
// of it.
const headSize = 64 << 10

// find returns the id that cmd/go gave the executable r, "" if there is none. An id set
// by hand, such as "redacted", counts as none: every build may have it.
func find(r io.ReaderAt) string {
	head := make([]byte, headSize)
	n, err := r.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return ""
	}
	head = head[:n]
	id := inText(head)
	if bytes.HasPrefix(head, []byte("\x7fELF")) {
		id = inNotes(r, head)
	}
	if !ofCmdGo(id) {
		return ""
	}
	return id
}

// ofCmdGo says whether an id has cmd/go's form: an action ID, others, and a
// content ID, each the base64url of 120 bits, with slashes between.
func ofCmdGo(id string) bool {
	parts := strings.Split(id, "/")
	for _, p := range parts {
		if len(p) != 20 || strings.Trim(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return len(parts) > 1
}

// inText returns the id in the text that Mach-O and PE files begin with.
func inText(head []byte) string {
	const prefix, suffix = "\xff Go build ID: \"", "\"\n \xff"
	_, rest, ok := bytes.Cut(head, []byte(prefix))
	id, _, ended := bytes.Cut(rest, []byte(suffix))
	if !ok || !ended || bytes.Contains(rest, []byte(prefix)) { // one of two may be foreign
		return ""
	}
	return string(id)
}

// inNotes returns the id in an ELF file's notes. Only notes in the program headers
// count: a program may carry another one's as data.
func inNotes(r io.ReaderAt, head []byte) string {
	const note = 4 // PT_NOTE
	var order binary.ByteOrder = binary.LittleEndian
	if len(head) < 64 {
		return ""
	}
	if head[5] == 2 {
		order = binary.BigEndian
	}
	wide := head[4] == 2
	// word is the number at the first offset in 32-bit files, at the second in others.
	word := func(b []byte, narrow, long int) uint64 {
		if wide {
			return order.Uint64(b[long:])
		}
		return uint64(order.Uint32(b[narrow:]))
	}
	at, size, n := word(head, 28, 32), uint64(order.Uint16(head[42:])), uint64(order.Uint16(head[44:]))
	if wide {
		size, n = uint64(order.Uint16(head[54:])), uint64(order.Uint16(head[56:]))
	}
	if size < 32 || wide && size < 56 {
		return ""
	}
	for i := range n {
		from := at + i*size
		if from < at || from > uint64(len(head)) || uint64(len(head))-from < size {
			return ""
		}
		p := head[from:]
		if order.Uint32(p) != note {
			continue
		}
		notes := make([]byte, min(word(p, 16, 32), headSize))
		start := word(p, 4, 8)
		if start > 1<<62 {
			return ""
		}
		read, err := r.ReadAt(notes, int64(start))
		if err != nil && err != io.EOF {
			return ""
		}
		if id := inSegment(notes[:read], order, word(p, 28, 48) == 8); id != "" {
			return id
		}
	}
	return ""
}

// inSegment returns the id among the notes of a segment, each of which begins
// at a multiple of 4 or 8 bytes.
func inSegment(b []byte, order binary.ByteOrder, by8 bool) string {
	const goBuildID = 4
	align := uint64(4)
	if by8 {
		align = 8
	}
	up := func(n uint64) uint64 { return (n + align - 1) &^ (align - 1) }
	for len(b) >= 12 {
		nameLen, idLen, kind := uint64(order.Uint32(b)), uint64(order.Uint32(b[4:])), order.Uint32(b[8:])
		id := up(12 + nameLen)
		if id+idLen > uint64(len(b)) {
			return ""
		}
		if kind == goBuildID && string(b[12:12+nameLen]) == "Go\x00\x00" {
			return string(b[id : id+idLen])
		}
		b = b[min(up(id+idLen), uint64(len(b))):]
	}
	return ""
}

package buildid

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	idA = "aaaaaaaaaaaaaaaaaaa-/bbbbbbbbbbbbbbbbbbb_/CCCCCCCCCCCCCCCCCCC0/99999999999999999999"
	idB = "zzzzzzzzzzzzzzzzzzzz/yyyyyyyyyyyyyyyyyyyy"
)

func note(order binary.AppendByteOrder, name string, kind uint32, id string) []byte {
	b := order.AppendUint32(nil, uint32(len(name)))
	b = order.AppendUint32(b, uint32(len(id)))
	b = append(order.AppendUint32(b, kind), name...)
	b = append(b, id...)
	return append(b, make([]byte, (4-len(b)%4)%4)...)
}

// elfOf is a file whose only notes are these, after pad bytes of data.
func elfOf(t testing.TB, order interface {
	binary.ByteOrder
	binary.AppendByteOrder
}, wide bool, data, notes []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	ident := [16]byte{0x7f, 'E', 'L', 'F', 1, 1, 1}
	if order.Uint16([]byte{0, 1}) == 1 {
		ident[5] = 2
	}
	var header, prog any
	if wide {
		ident[4] = 2
		header = &elf.Header64{Ident: ident, Phoff: 64, Phentsize: 56, Phnum: 2}
		prog = []elf.Prog64{{Type: 1},
			{Type: 4, Off: uint64(64 + 112 + len(data)), Filesz: uint64(len(notes)), Align: 4}}
	} else {
		header = &elf.Header32{Ident: ident, Phoff: 52, Phentsize: 32, Phnum: 2}
		prog = []elf.Prog32{{Type: 1},
			{Type: 4, Off: uint32(52 + 64 + len(data)), Filesz: uint32(len(notes)), Align: 4}}
	}
	for _, part := range []any{header, prog, data, notes} {
		if err := binary.Write(&b, order, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestFind(t *testing.T) {
	le, be := binary.LittleEndian, binary.BigEndian
	foreign := note(le, "Go\x00\x00", 4, idB)
	far := make([]byte, 2*headSize)
	text := func(id string) string { return "\xff Go build ID: \"" + id + "\"\n \xff" }
	gnu := note(le, "GNU\x00", 3, "0123456789abcdef0123")
	for name, tc := range map[string]struct {
		file []byte
		want string
	}{
		"elf":                {elfOf(t, le, true, nil, note(le, "Go\x00\x00", 4, idA)), idA},
		"elf of 32 bits":     {elfOf(t, le, false, nil, note(le, "Go\x00\x00", 4, idA)), idA},
		"elf, big-endian":    {elfOf(t, be, true, nil, note(be, "Go\x00\x00", 4, idA)), idA},
		"elf, 32 bits, big":  {elfOf(t, be, false, nil, note(be, "Go\x00\x00", 4, idA)), idA},
		"another note first": {elfOf(t, le, true, nil, append(gnu, note(le, "Go\x00\x00", 4, idA)...)), idA},
		"far from the head":  {elfOf(t, le, true, far, note(le, "Go\x00\x00", 4, idA)), idA},
		"a long id": {elfOf(t, le, true, nil,
			note(le, "Go\x00\x00", 4, strings.Repeat(idA+"/", 300)+idA)), strings.Repeat(idA+"/", 300) + idA},
		"an id beyond measure": {elfOf(t, le, true, nil,
			note(le, "Go\x00\x00", 4, strings.Repeat(idA+"/", 3000)+idA)), ""},
		"foreign data":         {elfOf(t, le, true, foreign, note(le, "Go\x00\x00", 4, idA)), idA},
		"only foreign data":    {elfOf(t, le, true, foreign, gnu), ""},
		"text in an elf":       {elfOf(t, le, true, []byte(text(idB)), gnu), ""},
		"another kind of note": {elfOf(t, le, true, nil, note(le, "Go\x00\x00", 1, idA)), ""},
		"another one's note":   {elfOf(t, le, true, nil, note(le, "Ho\x00\x00", 4, idA)), ""},
		"no id":                {elfOf(t, le, true, nil, note(le, "Go\x00\x00", 4, "")), ""},
		"redacted":             {elfOf(t, le, true, nil, note(le, "Go\x00\x00", 4, "redacted")), ""},
		"one part":             {elfOf(t, le, true, nil, note(le, "Go\x00\x00", 4, "aaaaaaaaaaaaaaaaaaaa")), ""},
		"short parts":          {elfOf(t, le, true, nil, note(le, "Go\x00\x00", 4, "a/b/c/d")), ""},
		"other letters": {elfOf(t, le, true, nil,
			note(le, "Go\x00\x00", 4, "aaaaaaaaaaaaaaaaaaa!/aaaaaaaaaaaaaaaaaaaa")), ""},
		"text":                  {[]byte("MZ..." + text(idA) + "code"), idA},
		"text, redacted":        {[]byte("MZ..." + text("redacted")), ""},
		"text that has no end":  {[]byte("MZ..." + text(idA)[:90]), ""},
		"text of two":           {[]byte("MZ..." + text(idA) + text(idB)), ""},
		"text beyond the head":  {append(far, text(idA)...), ""},
		"text in another's id":  {[]byte("\xff Go build ID: \"" + text(idA)), ""},
		"a script":              {[]byte("#!/bin/sh\n"), ""},
		"nothing":               {nil, ""},
		"an elf of four bytes":  {[]byte("\x7fELF"), ""},
		"program headers afar":  {append([]byte("\x7fELF\x02\x01"), bytes.Repeat([]byte{0xff}, 100)...), ""},
		"program headers of 32": {append([]byte("\x7fELF\x01\x01"), bytes.Repeat([]byte{0xff}, 100)...), ""},
	} {
		if got := find(bytes.NewReader(tc.file)); got != tc.want {
			t.Errorf("%s: %q, not %q", name, got, tc.want)
		}
	}
}

// TestFindAsTheGoCommand builds for other systems: the id found is that of go tool
// buildid.
func TestFindAsTheGoCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	dir := t.TempDir()
	src := filepath.Join(dir, "main.go")
	if err := os.WriteFile(src, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, system := range []string{"linux/amd64", "linux/arm", "linux/s390x", "darwin/arm64", "windows/amd64"} {
		exe := filepath.Join(dir, "exe")
		goos, arch, _ := strings.Cut(system, "/")
		cmd := exec.Command("go", "build", "-o", exe, src)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOOS="+goos, "GOARCH="+arch, "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", system, err, out)
		}
		want, err := exec.Command("go", "tool", "buildid", exe).Output()
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(exe)
		if err != nil {
			t.Fatal(err)
		}
		if id := find(f); id == "" || id != strings.TrimSpace(string(want)) {
			t.Errorf("%s: %q, not %q", system, id, want)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestUnknownIsNeverTheSame(t *testing.T) {
	if a, b := unknown(), unknown(); a == b || !strings.HasPrefix(a, "unknown ") {
		t.Error(a, b)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(empty)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if a, b := nameOf(f), nameOf(f); a == b {
		t.Error(a)
	}
}

func FuzzFind(f *testing.F) {
	le := binary.LittleEndian
	f.Add(elfOf(f, le, true, nil, note(le, "Go\x00\x00", 4, idA)))
	f.Add(elfOf(f, le, false, []byte(idB), note(le, "GNU\x00", 4, idA)))
	f.Add([]byte("MZ\xff Go build ID: \"" + idA + "\"\n \xff"))
	f.Fuzz(func(t *testing.T, file []byte) {
		if id := find(bytes.NewReader(file)); id != "" && (!ofCmdGo(id) || !bytes.Contains(file, []byte(id))) {
			t.Errorf("%q", id)
		}
	})
}

// BenchmarkHash measures what a build without an id costs once in a process.
func BenchmarkHash(b *testing.B) {
	path := filepath.Join(b.TempDir(), "exe")
	if err := os.WriteFile(path, bytes.Repeat([]byte("machine code"), 80<<20/12), 0o600); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		f, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		nameOf(f)
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

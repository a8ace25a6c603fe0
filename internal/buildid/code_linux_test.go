package buildid

import (
	"os"
	"reflect"
	"testing"
)

func TestParseMapping(t *testing.T) {
	for _, tc := range []struct {
		line string
		addr uint64
		want mapping
		in   bool
	}{
		{"00400000-00a2c000 r-xp 00000000 fd:01 1835                   /usr/bin/x", 0x400000,
			mapping{"/usr/bin/x", 1835}, true},
		{"00400000-00a2c000 r-xp 00000000 fd:01 1835                   /usr/bin/x", 0xa2bfff,
			mapping{"/usr/bin/x", 1835}, true},
		{"00400000-00a2c000 r-xp 00000000 fd:01 1835                   /usr/bin/x", 0xa2c000, mapping{}, false},
		{"00400000-00a2c000 r-xp 00000000 fd:01 1835 /opt/a b/x (deleted)", 0x400001,
			mapping{"/opt/a b/x (deleted)", 1835}, true},
		{`7f0000000000-7f0000001000 r-xp 00000000 fd:01 7 /a\012b`, 0x7f0000000fff, mapping{"/a\nb", 7}, true},
		{"7f0000000000-7f0000001000 r-xp 00000000 00:00 0 ", 0x7f0000000000, mapping{}, true},
		{"7f0000000000-7f0000001000 r-xp 00000000 00:00 0", 0x7f0000000000, mapping{}, true},
		{"nonsense", 0, mapping{}, false},
		{"", 0, mapping{}, false},
	} {
		if m, in := parseMapping(tc.line, tc.addr); m != tc.want || in != tc.in {
			t.Errorf("%q at %#x: %+v %v", tc.line, tc.addr, m, in)
		}
	}
}

func TestMappingOfThisCode(t *testing.T) {
	exe, err := os.Readlink(self)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := mappingOf(reflect.ValueOf(nameOf).Pointer()); err != nil || m.path != exe || m.inode == 0 {
		t.Errorf("%+v %v", m, err)
	}
	if m, err := mappingOf(1); err == nil {
		t.Errorf("%+v", m)
	}
}

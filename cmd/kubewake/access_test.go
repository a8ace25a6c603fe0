package main

import "testing"

// TestPortStays: an address without a port goes on with the earlier one, however it is
// written.
func TestPortStays(t *testing.T) {
	for _, tc := range []struct {
		listen, earlier string
		want            bool
	}{
		{"127.0.0.1:0", "127.0.0.1:4711", true},
		{"localhost:0", "127.0.0.1:4711", true},
		{"127.0.0.1:", "127.0.0.1:4711", true},
		{"[::1]:0", "[::1]:4711", true},
		{"[::1]:0", "127.0.0.1:4711", false},
		{"127.0.0.2:0", "127.0.0.1:4711", false},
		{"127.0.0.1:4712", "127.0.0.1:4711", false},
		{"127.0.0.1:0", "", false},
		{"127.0.0.1", "127.0.0.1:4711", false},
	} {
		if got := portStays(tc.listen, tc.earlier); got != tc.want {
			t.Errorf("%s after %s: %v", tc.listen, tc.earlier, got)
		}
	}
}

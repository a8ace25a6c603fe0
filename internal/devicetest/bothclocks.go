package devicetest

import (
	"time"
	"unsafe"
)

// BothClocks returns a time as time.Now does outside of bubbles. There is no other way to
// make one whose two readings disagree.
func BothClocks(wall time.Time, monotonic time.Duration) (t time.Time) {
	const unix1885 = -2682288000
	inside := (*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&t))
	inside.wall = 1<<63 | uint64(wall.Unix()-unix1885)<<30 | uint64(wall.Nanosecond())
	inside.ext = int64(monotonic)
	return t
}

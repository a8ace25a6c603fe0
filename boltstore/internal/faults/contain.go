package faults

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// Contain runs fn and makes a panic or a memory fault in this goroutine an
// ErrDamaged. If fn panics with an ErrDamaged, that is the error.
func Contain(fn func() error) error { return Catch(ErrDamaged, fn) }

// Catch is [Contain] with another error.
func Catch(as error, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r == nil {
			return
		} else if e, ok := r.(error); ok && errors.Is(e, ErrDamaged) {
			err = e
		} else if _, ok := r.(interface{ Addr() uintptr }); ok { // Go calls it a nil pointer
			err = fmt.Errorf("%w: a page cannot be read: the disk fails, or the page is damaged or was cut off", as)
		} else {
			err = fmt.Errorf("%w: %v", as, r)
		}
	}()
	return fn()
}

package faults

import (
	"fmt"
	"runtime/debug"
)

// Contain runs fn and makes a panic or a memory fault in this goroutine an
// ErrDamaged.
func Contain(fn func() error) error { return Catch(ErrDamaged, fn) }

// Catch is [Contain] with another error.
func Catch(as error, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", as, r)
		}
	}()
	return fn()
}

// Package faults has the errors that the packages below boltstore share, and a list of
// errors that stays short. boltstore exports the errors.
package faults

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrForeign means that the file is not a kubewake file.
	ErrForeign = errors.New("not a kubewake file")
	// ErrDamaged means that bytes in the file are not those that were written.
	ErrDamaged = errors.New("damaged")
	// ErrLocked means that another process has the file open.
	ErrLocked = errors.New("file is in use by another process")
	// ErrUnsafe means that other users can change the file or replace it.
	ErrUnsafe = errors.New("not safe from other users")
)

// Most is how many errors a List keeps.
const Most = 20

// List keeps the first errors of many, and counts all of them. The zero value
// is empty. Its text is one line. It is not safe for concurrent use.
type List struct {
	first []error
	n     int
}

// Len is how many errors were added.
func (l *List) Len() int { return l.n }

// Add adds err. It does nothing with nil, and adds each error of another List.
func (l *List) Add(err error) { l.AddOf("", err) }

// AddOf is Add with the name of the thing that the error concerns.
func (l *List) AddOf(what string, err error) {
	many := &List{first: []error{err}, n: 1}
	switch err := err.(type) {
	case nil:
		return
	case *List:
		many = err
	}
	l.n += many.n
	for _, err := range many.first {
		if len(l.first) == Most {
			return
		}
		if what != "" {
			err = fmt.Errorf("%s: %w", what, err)
		}
		l.first = append(l.first, err)
	}
}

// Join is errors.Join with a text of one line.
func Join(errs ...error) error {
	var l List
	for _, err := range errs {
		l.Add(err)
	}
	return l.Err()
}

// Err returns the list, or nil if it is empty.
func (l *List) Err() error {
	if l.n == 0 {
		return nil
	}
	return l
}

func (l *List) Error() string {
	var texts []string
	for _, err := range l.first {
		texts = append(texts, err.Error())
	}
	if more := l.n - len(l.first); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

func (l *List) Unwrap() []error { return l.first }

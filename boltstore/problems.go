package boltstore

import (
	"fmt"
	"strings"
)

// maxProblems is how many problems are told of a file or a source.
const maxProblems = 20

// problems are the first of many errors, and how many there are in all. The zero
// value has none. As an error they are told a line each.
type problems struct {
	first []error
	n     int
}

// add notes err, if there is one; problems among themselves.
func (p *problems) add(err error) { p.addOf("", err) }

// addOf is add for errors that need to be told what they are of.
func (p *problems) addOf(what string, err error) {
	many := &problems{first: []error{err}, n: 1}
	switch err := err.(type) {
	case nil:
		return
	case *problems:
		many = err
	}
	p.n += many.n
	for _, err := range many.first {
		if len(p.first) == maxProblems {
			return
		}
		if what != "" {
			err = fmt.Errorf("%s: %w", what, err)
		}
		p.first = append(p.first, err)
	}
}

// err is nil if there are none.
func (p *problems) err() error {
	if p.n == 0 {
		return nil
	}
	return p
}

func (p *problems) Error() string {
	var lines []string
	for _, err := range p.first {
		lines = append(lines, err.Error())
	}
	if more := p.n - len(p.first); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

func (p *problems) Unwrap() []error { return p.first }

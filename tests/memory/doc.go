// Package memory measures how much anonymous memory a program takes that wakes
// and catches up with what it missed.
package memory

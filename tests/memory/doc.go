// Package memory measures the anonymous memory of a program that wakes and catches up
// with the changes it has missed.
package memory

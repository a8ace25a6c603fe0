// Package measured is what all programs that the benchmark measures have in common:
// how they are told what to do, what they count, and how they report it. The programs
// differ in the Cache that they give to Run.
//
// It depends on no program's cache, so that a program has in memory only what it uses.
package measured

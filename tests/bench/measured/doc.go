// Package measured has the parts that all measured programs share: how they get their
// task, what they count, and how they report it. The programs differ in the Cache that
// they give to Run.
//
// It depends on no program's cache, so each program has only its own cache's code in
// memory.
package measured

// Package beside manages the files beside a kubewake file: new files that are made to
// take its place, and files that could not be used and were set aside.
//
//	.<file>.new-<inode of the old file>-<inode of this one>-<random>   being made
//	<file>.corrupt-<time>[-<n>]                                        set aside
//
// The next Open removes unfinished files that a crash left. After a crash a third file
// may have such a name: one that came to the path while the names were exchanged. The
// inodes tell it from the other two, and it is set aside.
package beside

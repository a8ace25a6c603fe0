// Package examples runs the examples beside it: a controller of client-go's, an agent on
// a device whose link comes and goes, and what runs them in a cluster.
package examples

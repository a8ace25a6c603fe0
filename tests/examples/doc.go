// Package examples runs the examples beside it: a controller that uses client-go, an
// agent on a device with an unreliable link, and the manifests that run them in a
// cluster.
package examples

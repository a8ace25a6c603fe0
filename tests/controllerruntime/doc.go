// Package controllerruntime runs controller-runtime managers on the file, on a real API
// server. It is a module of its own, so that no other one depends on controller-runtime.
package controllerruntime

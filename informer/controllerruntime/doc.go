// Package controllerruntime puts the cache of a controller-runtime manager into a file,
// and makes the work of a controller durable. It is a module of its own, so that the
// library does not depend on controller-runtime.
//
// [NewManager] is ctrl.NewManager with the file: informer.ForControllerRuntime makes the
// manager's informers.
//
// A stock controller reconciles every object after each start, and never learns which
// objects were deleted while it was down. With a [Work] it reconciles only the objects
// that changed, deletes included, and those that it had not finished:
//
//	work := controllerruntime.NewWork("shop")
//	err := ctrl.NewControllerManagedBy(mgr).
//		Named("shop").
//		WatchesRawSource(controllerruntime.For(work, mgr.GetCache(), &corev1.ConfigMap{})).
//		Complete(work.Reconciler(reconciler))
package controllerruntime

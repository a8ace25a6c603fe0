// Package controllerruntime puts the cache of a controller-runtime manager into a file,
// and makes the work of a controller durable. It is a module of its own, so that the
// library does not depend on controller-runtime.
//
// [NewManager] is ctrl.NewManager with the file: the manager's informers are of
// informer.ForControllerRuntime.
//
// A stock controller reconciles every object after each start, and never hears of those
// that were deleted while it was down. With a [Work] it reconciles what changed, deletes
// included, and what it had not finished:
//
//	work := controllerruntime.NewWork("shop")
//	err := ctrl.NewControllerManagedBy(mgr).
//		Named("shop").
//		WatchesRawSource(controllerruntime.For(work, mgr.GetCache(), &corev1.ConfigMap{})).
//		Complete(work.Reconciler(reconciler))
package controllerruntime

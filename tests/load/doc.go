// Package load puts one file under all kinds of load and faults at once, and compares it
// with the known truth.
//
// A simulated API server makes up to 5,000 changes a second, or as many as the machine
// allows. A program keeps two of its resources in one encrypted file: a large one, which
// is read from the file, and a small one, which fits into memory. The program has 50
// handlers (plain and durable; some stall, some fail, some acknowledge later, some are
// workqueues) and 50 readers that get objects, list namespaces and use an index.
// Meanwhile snapshots are taken and the file is compacted. Connections break, and the
// server restarts, which makes the program list everything again. It is killed at seeded
// moments, also while it opens, copies or compacts the file, and the file is opened
// again, often with a rotated keyset. A snapshot, a compaction and a kill come first, and
// the first start after them has a new key.
//
// The test checks that:
//
//   - Nothing is lost. After each life, and in each snapshot, the file is sound, and each
//     source has exactly the objects, with all their content, that the server had at the
//     source's resourceVersion. That version never goes back. Each index equals one
//     recomputed from the objects. In the end this is also so for what readers are given,
//     from memory and from the file; before, readers and handlers compare one version in
//     sixteen as a whole. A file that was opened with a new key has a new data key, and the
//     keyset from before does not open it.
//   - Every handler ends equal to the server, whatever it was told in which life: each
//     object in its last version, and no object that is gone. No object takes another's
//     place without a delete between them. No durable handler is Reset but at first. The
//     last kill comes as the load ends, so no later change hides what it lost.
//   - Within a life no handler that acknowledges in order is told an older version of a key
//     after a newer one, and no read shows an earlier state than a read before it. An
//     object can be read when a handler is told it.
//   - Nothing hangs. Every awaited figure moves, an order is carried out and a read ends
//     within three minutes, or the test fails, with all goroutines if it waited itself.
//   - Memory, file and goroutines are bounded: figures_test.go has the bounds, also of the
//     memory in use at the end, and of its growth over ten thousand more changes or as many
//     as there are objects. Memory does not depend on the number of objects or on how
//     far plain handlers are behind. The file depends on what plain handlers have not been
//     told, so the server waits if they, or the file, are too far behind. A plain handler
//     stalls for a few seconds at a time, a durable one for as long as a life: of it, file
//     and memory keep its pending keys, of which there are no more than objects.
//
// Speed is reported and not asserted: changes and calls a second, and the quantiles of
// reads. TestTenant does assert when changes are told, beside a handler that fails.
//
// LOAD_OBJECTS, LOAD_TIME, LOAD_RATE and LOAD_SEED set the number of objects, the
// duration of the changes, their rate, and the seed. `make torture` has 100,000 objects
// for ten minutes, `make test` 3,000 for a minute, and with the race detector 600 for
// five seconds.
package load

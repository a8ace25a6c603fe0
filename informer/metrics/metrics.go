// Package metrics shows Prometheus what a file and its informers are doing:
//
//	prometheus.MustRegister(metrics.NewCollector(db))
//
// docs/design/metrics.md lists the metrics, what to alert on, and how to add one.
// docs/grafana/kubewake.json is a dashboard of them.
//
// The metrics that client-go's informers publish under a name are separate: the length of
// the queue, the time to hand out popped items, the store's version. See
// informer.Options.InformerMetricsProvider.
package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/reflector"
)

// desc describes a metric, and keeps it for Describe.
func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	descs = append(descs, d)
	return d
}

var descs []*prometheus.Desc

// Of the file.
var (
	fileBytes = desc("kubewake_file_bytes", "Size of the file.")
	fileMoved = desc("kubewake_file_moved",
		"1 while the file is not at its path: it was removed or renamed, or another file is there.")
	fileWritten = desc("kubewake_file_written_bytes_total",
		"Bytes written to the file, about: the pages of all transactions.")
	fileFailing = desc("kubewake_commit_failing",
		"1 while commits fail and are retried, or damage to the file has ended them: restart the program.")
	fileFailed = desc("kubewake_commit_failures_total",
		"Tries to commit that failed. Nothing is lost: they are retried.")
	fileSeconds = desc("kubewake_commit_duration_seconds", "How long write transactions took, sync included.")
	fileChanges = desc("kubewake_commit_changes", "How many changes from the server went into one commit.")
	fileSizes   = desc("kubewake_commit_changes_bytes", "Encoded size of the changes that went into one commit.")
	fileWriting = desc("kubewake_commit_running_seconds",
		"How long the write transaction under way has taken so far, 0 if there is none.")
	fileMemory     = desc("kubewake_object_memory_bytes", "About what decoded objects take in memory.")
	fileMemoryMost = desc("kubewake_object_memory_limit_bytes",
		"What decoded objects may take in memory (Options.ObjectMemory).")
	fileAside     = desc("kubewake_set_aside_files", "Files beside this one that could not be used.", "reason")
	fileAsides    = desc("kubewake_files_set_aside_total", "Files set aside since this one was opened.")
	fileFallbacks = desc("kubewake_fallback_informers_total",
		"Informers that were to keep their objects in the file and do not. A strict one never syncs; others keep "+
			"them in memory.", "type", "strict")
)

// Of a source.
var (
	sourceObjects = desc("kubewake_source_objects", "Objects in the file.", "source")
	sourceBytes   = desc("kubewake_source_bytes", "Bytes of the objects' records in the file.", "source")
	sourceJournal = desc("kubewake_source_journal_bytes", "Bytes of the journal in the file.", "source")
	sourceSynced  = desc("kubewake_source_synced", "1 once HasSynced is true.", "source")
	sourceAge     = desc("kubewake_source_age_seconds",
		"Time since the server last confirmed the objects. Missing if that is not known.", "source")
	sourceCompared = desc("kubewake_source_compared_age_seconds",
		"Time since all objects were last compared with a list. Missing if that is not known.", "source")
	sourceDiffered = desc("kubewake_source_differed",
		"Objects that the last comparison with a list found otherwise, and repaired.", "source")
	sourcePhase = desc("kubewake_source_phase", "1 for the phase that the source is in, 0 for the others.",
		"source", "phase")
	sourceResumes = desc("kubewake_source_resumes_total",
		"Lists answered from the file, after which the watch resumed.", "source")
	sourceRelists = desc("kubewake_source_relists_total", "Lists read from the server, by reason.", "source",
		"reason")
	sourceRelisted = desc("kubewake_source_last_relist_timestamp_seconds",
		"When the last list read from the server ended, 0 if there was none since the start.", "source")
	sourceSaved = desc("kubewake_source_saved_bytes_total",
		"Bytes of records that lists answered from the file did not transfer.", "source")
	sourceFailed   = desc("kubewake_source_failed_total", "Objects that could not be stored.", "source")
	sourceDegraded = desc("kubewake_source_degraded", "1 while an object is missing from the file or damaged there.",
		"source")
	sourceUnstored = desc("kubewake_source_unstored",
		"Objects that could not be transformed, keyed or encoded as the server showed them.", "source")
	sourceUnindexed = desc("kubewake_source_unindexed",
		"Values that objects lack in an index whose function failed.", "source")
	sourceOutdated = desc("kubewake_source_outdated",
		"1 while the objects in the file are not served, with the reason.", "source", "reason")
	sourceReindexed = desc("kubewake_source_reindexed_total", "Times the objects in the file were indexed again.",
		"source", "index")
	sourceInMemory = desc("kubewake_source_in_memory",
		"1 while this process reads the objects from memory, 0 while from the file.", "source")
	sourceMemory = desc("kubewake_source_memory_bytes", "About what the objects take in memory.", "source")
)

// Of a handler. A durable handler has its name in the label; the plain one that is
// furthest behind has none.
var (
	handlerLag = desc("kubewake_handler_lag_entries",
		"Journal entries that the plain handler that is furthest behind has not been told.", "source", "handler")
	handlerPending = desc("kubewake_handler_pending_keys", "Keys that a durable handler has not acknowledged.",
		"source", "handler")
	handlerAge = desc("kubewake_handler_pending_age_seconds",
		"Time since the oldest key that a durable handler has in hand became pending, 0 if there is none.", "source",
		"handler")
	handlerFailing = desc("kubewake_handler_failing_keys",
		"Keys that a durable handler has refused; they are told again after a while.", "source", "handler")
	handlerFailures = desc("kubewake_handler_failures_total", "Calls that a durable handler has refused.", "source",
		"handler")
)

// phases are all phases of a source, and relists all reasons of a relist. Series of a
// counter begin with 0, so that rate() sees the first relist.
var (
	phases = []reflector.Phase{reflector.PhaseStarting, reflector.PhaseConnecting, reflector.PhaseOffline,
		reflector.PhaseFailing, reflector.PhaseDenied, reflector.PhaseUnclaimed, reflector.PhaseRelisting,
		reflector.PhaseCatchingUp, reflector.PhaseLive}
	relists = []string{reflector.ReasonFirst, reflector.ReasonExpired, reflector.ReasonRestored,
		reflector.ReasonDamaged, reflector.ReasonCluster,
		reflector.ReasonAudit, reflector.ReasonNoVersion, reflector.ReasonUnreadable, reflector.ReasonUnstored,
		reflector.ReasonDiffers, reflector.ReasonUnconfirmed, boltstore.OutdatedType, boltstore.OutdatedTransform}
)

// labels makes the values of a label: text that Prometheus accepts, different for each
// call.
type labels map[string]bool

func (l labels) of(text string) string {
	text = strings.ToValidUTF8(text, "?")
	for l[text] {
		text += "+"
	}
	l[text] = true
	return text
}

package printcolumns

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func init() {
	register(eventColumns, event)
	register(eventColumns, newEvent)
}

func eventColumns() []metav1.TableColumnDefinition {
	doc := corev1.Event{}.SwaggerDoc()
	last := name()
	last.Priority = 1
	return []metav1.TableColumnDefinition{
		text("Last Seen", doc["lastTimestamp"]), text("Type", doc["type"]), text("Reason", doc["reason"]),
		text("Object", doc["involvedObject"]),
		wide("Subobject", corev1.ObjectReference{}.SwaggerDoc()["fieldPath"]), wide("Source", doc["source"]),
		text("Message", doc["message"]),
		wide("First Seen", doc["firstTimestamp"]), wide("Count", doc["count"]), last,
	}
}

func event(e *corev1.Event, now time.Time) []any {
	first := e.FirstTimestamp.Time
	if first.IsZero() {
		first = e.EventTime.Time
	}
	last, count := e.LastTimestamp.Time, e.Count
	if last.IsZero() {
		last = first
	}
	switch {
	case e.Series != nil:
		last, count = e.Series.LastObservedTime.Time, e.Series.Count
	case count == 0: // of an event that happened once, in the newer form
		count = 1
	}
	about := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name != "" {
		about += "/" + e.InvolvedObject.Name
	}
	source := or(e.Source.Component, e.ReportingController)
	if host := or(e.Source.Host, e.ReportingInstance); host != "" {
		source += ", " + host
	}
	return []any{since(last, now), e.Type, e.Reason, about, e.InvolvedObject.FieldPath, source,
		strings.TrimSpace(e.Message),
		since(first, now), int64(count), e.Name}
}

// newEvent is an event of the group events.k8s.io, which shows as one of the core group.
func newEvent(e *eventsv1.Event, now time.Time) []any {
	core := &corev1.Event{
		ObjectMeta: e.ObjectMeta, InvolvedObject: e.Regarding, Reason: e.Reason, Message: e.Note, Type: e.Type,
		Source: e.DeprecatedSource, FirstTimestamp: e.DeprecatedFirstTimestamp,
		LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount,
		EventTime: e.EventTime, ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
	}
	if e.Series != nil {
		core.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return event(core, now)
}

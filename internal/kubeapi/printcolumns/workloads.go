package printcolumns

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
)

func init() {
	register(func() []metav1.TableColumnDefinition {
		spec, status := appsv1.DeploymentSpec{}.SwaggerDoc(), appsv1.DeploymentStatus{}.SwaggerDoc()
		return withTemplate(spec["selector"], name(),
			text("Ready", "Number of the pod with ready state"),
			text("Up-to-date", status["updatedReplicas"]), text("Available", status["availableReplicas"]), age())
	}, deployment)
	register(func() []metav1.TableColumnDefinition {
		spec, status := appsv1.ReplicaSetSpec{}.SwaggerDoc(), appsv1.ReplicaSetStatus{}.SwaggerDoc()
		return withTemplate(spec["selector"], name(),
			integer("Desired", spec["replicas"]), integer("Current", status["replicas"]),
			integer("Ready", status["readyReplicas"]), age())
	}, replicaSet)
	register(func() []metav1.TableColumnDefinition {
		columns := withTemplate("", name(), text("Ready", "Number of the pod with ready state"), age())
		return columns[:len(columns)-1] // it has no selector
	}, statefulSet)
	register(func() []metav1.TableColumnDefinition {
		status := appsv1.DaemonSetStatus{}.SwaggerDoc()
		return withTemplate(appsv1.DaemonSetSpec{}.SwaggerDoc()["selector"], name(),
			integer("Desired", status["desiredNumberScheduled"]), integer("Current", status["currentNumberScheduled"]),
			integer("Ready", status["numberReady"]), integer("Up-to-date", status["updatedNumberScheduled"]),
			integer("Available", status["numberAvailable"]),
			text("Node Selector", corev1.PodSpec{}.SwaggerDoc()["nodeSelector"]), age())
	}, daemonSet)
	register(func() []metav1.TableColumnDefinition {
		return withTemplate(batchv1.JobSpec{}.SwaggerDoc()["selector"], name(),
			text("Status", "Status of the job."), text("Completions", batchv1.JobStatus{}.SwaggerDoc()["succeeded"]),
			text("Duration", "Time required to complete the job."), age())
	}, job)
	register(func() []metav1.TableColumnDefinition {
		spec, status := batchv1.CronJobSpec{}.SwaggerDoc(), batchv1.CronJobStatus{}.SwaggerDoc()
		return withTemplate(batchv1.JobSpec{}.SwaggerDoc()["selector"], name(),
			text("Schedule", spec["schedule"]), text("Timezone", spec["timeZone"]),
			column("Suspend", "boolean", spec["suspend"]),
			integer("Active", status["active"]), text("Last Schedule", status["lastScheduleTime"]), age())
	}, cronJob)
}

// withTemplate adds the columns of a pod template and of a selector.
func withTemplate(selector string, columns ...metav1.TableColumnDefinition) []metav1.TableColumnDefinition {
	return append(columns,
		wide("Containers", "Names of each container in the template."),
		wide("Images", "Images referenced by each container in the template."),
		wide("Selector", selector))
}

// template returns the names and the images of a pod template's containers.
func template(t *corev1.PodTemplateSpec) (names, images string) {
	var n, i []string
	for _, c := range t.Spec.Containers {
		n, i = append(n, c.Name), append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}

// replicas is a wanted number, which the API sets to 1 if it is not given.
func replicas(n *int32) int64 { return int64(ptr.Deref(n, 1)) }

func deployment(d *appsv1.Deployment, now time.Time) []any {
	names, images := template(&d.Spec.Template)
	selector := "<invalid>"
	if s, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil {
		selector = s.String()
	}
	return []any{d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, replicas(d.Spec.Replicas)),
		int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas), ageOf(d, now), names, images, selector}
}

func replicaSet(r *appsv1.ReplicaSet, now time.Time) []any {
	names, images := template(&r.Spec.Template)
	return []any{r.Name, replicas(r.Spec.Replicas), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas),
		ageOf(r, now),
		names, images, metav1.FormatLabelSelector(r.Spec.Selector)}
}

func statefulSet(s *appsv1.StatefulSet, now time.Time) []any {
	names, images := template(&s.Spec.Template)
	return []any{s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, replicas(s.Spec.Replicas)), ageOf(s, now),
		names, images}
}

func daemonSet(d *appsv1.DaemonSet, now time.Time) []any {
	names, images := template(&d.Spec.Template)
	st := &d.Status
	return []any{d.Name, int64(st.DesiredNumberScheduled), int64(st.CurrentNumberScheduled), int64(st.NumberReady),
		int64(st.UpdatedNumberScheduled), int64(st.NumberAvailable),
		labels.FormatLabels(d.Spec.Template.Spec.NodeSelector), ageOf(d, now),
		names, images, metav1.FormatLabelSelector(d.Spec.Selector)}
}

func job(j *batchv1.Job, now time.Time) []any {
	completions := fmt.Sprintf("%d/1", j.Status.Succeeded)
	if j.Spec.Completions != nil {
		completions = fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	} else if n := ptr.Deref(j.Spec.Parallelism, 0); n > 1 {
		completions += fmt.Sprintf(" of %d", n)
	}
	took := ""
	if start := j.Status.StartTime; start != nil {
		end := now
		if j.Status.CompletionTime != nil {
			end = j.Status.CompletionTime.Time
		}
		took = duration.HumanDuration(end.Sub(start.Time))
	}
	names, images := template(&j.Spec.Template)
	return []any{j.Name, jobStatus(j), completions, took, ageOf(j, now), names, images,
		metav1.FormatLabelSelector(j.Spec.Selector)}
}

func jobStatus(j *batchv1.Job) string {
	is := func(kind batchv1.JobConditionType) bool {
		i := slices.IndexFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == kind })
		return i >= 0 && j.Status.Conditions[i].Status == corev1.ConditionTrue
	}
	for _, kind := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if is(kind) {
			return string(kind)
		}
	}
	if j.DeletionTimestamp != nil {
		return "Terminating"
	}
	for _, kind := range []batchv1.JobConditionType{batchv1.JobSuspended, batchv1.JobFailureTarget,
		batchv1.JobSuccessCriteriaMet} {
		if is(kind) {
			return string(kind)
		}
	}
	return "Running"
}

func cronJob(c *batchv1.CronJob, now time.Time) []any {
	last := "<none>"
	if t := c.Status.LastScheduleTime; t != nil {
		last = since(t.Time, now)
	}
	suspend := "<unset>"
	if c.Spec.Suspend != nil {
		suspend = "False"
		if *c.Spec.Suspend {
			suspend = "True"
		}
	}
	names, images := template(&c.Spec.JobTemplate.Spec.Template)
	return []any{c.Name, c.Spec.Schedule, orOf(c.Spec.TimeZone, "<none>"), suspend, int64(len(c.Status.Active)), last,
		ageOf(c, now),
		names, images, metav1.FormatLabelSelector(c.Spec.JobTemplate.Spec.Selector)}
}

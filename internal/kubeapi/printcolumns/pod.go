package printcolumns

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func init() {
	registerRow(func() []metav1.TableColumnDefinition {
		spec, status := corev1.PodSpec{}.SwaggerDoc(), corev1.PodStatus{}.SwaggerDoc()
		return []metav1.TableColumnDefinition{
			name(),
			text("Ready", "The aggregate readiness state of this pod for accepting traffic."),
			text("Status", "The aggregate status of the containers in this pod."),
			text("Restarts", "The number of times the containers in this pod have been restarted and when the last "+
				"container in this pod has restarted."),
			age(),
			wide("IP", status["podIP"]),
			wide("Node", spec["nodeName"]),
			wide("Nominated Node", status["nominatedNodeName"]),
			wide("Readiness Gates", spec["readinessGates"]),
		}
	}, podRow)
}

func podRow(p *corev1.Pod, now time.Time) metav1.TableRow {
	s := summarize(p)
	ip := p.Status.PodIP
	if len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	row := metav1.TableRow{Cells: []any{
		p.Name, fmt.Sprintf("%d/%d", s.ready, s.containers), s.reason, s.restarts.text(now), ageOf(p, now),
		or(ip, "<none>"), or(p.Spec.NodeName, "<none>"), or(p.Status.NominatedNodeName, "<none>"), readinessGates(p),
	}}
	completed := metav1.TableRowCondition{Type: metav1.RowCompleted, Status: metav1.ConditionTrue,
		Reason: string(p.Status.Phase)}
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		completed.Message = "The pod has completed successfully."
		row.Conditions = []metav1.TableRowCondition{completed}
	case corev1.PodFailed:
		completed.Message = "The pod failed."
		row.Conditions = []metav1.TableRowCondition{completed}
	}
	return row
}

// restarts counts the restarts of some containers.
type restarts struct {
	n    int
	last time.Time // when the last one ended that was restarted
}

func (r *restarts) add(c *corev1.ContainerStatus) {
	r.n += int(c.RestartCount)
	if end := c.LastTerminationState.Terminated; end != nil && end.FinishedAt.After(r.last) {
		r.last = end.FinishedAt.Time
	}
}

func (r *restarts) text(now time.Time) string {
	if r.n == 0 || r.last.IsZero() {
		return strconv.Itoa(r.n)
	}
	return fmt.Sprintf("%d (%s ago)", r.n, since(r.last, now))
}

// podSummary is the summary of a pod's containers in the columns.
type podSummary struct {
	containers, ready int
	reason            string
	restarts          restarts
}

func summarize(p *corev1.Pod) podSummary {
	s := podSummary{containers: len(p.Spec.Containers), reason: or(p.Status.Reason, string(p.Status.Phase))}
	if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated
	}) {
		s.reason = corev1.PodReasonSchedulingGated
	}
	sidecars := map[string]bool{}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil &&
			*c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars[c.Name] = true
			s.containers++
		}
	}
	ofSidecars, initializing := s.initContainers(p, sidecars)
	if !initializing || podCondition(p, corev1.PodInitialized) == corev1.ConditionTrue {
		s.restarts = ofSidecars
		s.mainContainers(p)
	}
	switch terminal := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded; {
	case p.DeletionTimestamp == nil:
	case p.Status.Reason == "NodeLost":
		s.reason = string(corev1.PodUnknown)
	case !terminal:
		s.reason = "Terminating"
	}
	return s
}

// initContainers takes the init containers up to the first one that has neither ended
// well nor, as a sidecar, started. That one is the pod's reason.
func (s *podSummary) initContainers(p *corev1.Pod, sidecars map[string]bool) (ofSidecars restarts, initializing bool) {
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		s.restarts.add(c)
		if sidecars[c.Name] {
			ofSidecars.add(c)
		}
		end, wait := c.State.Terminated, c.State.Waiting
		switch {
		case end != nil && end.ExitCode == 0:
			continue
		case sidecars[c.Name] && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case end != nil:
			s.reason = "Init:" + endReason(end)
		case wait != nil && wait.Reason != "" && wait.Reason != "PodInitializing":
			s.reason = "Init:" + wait.Reason
		default:
			s.reason = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return ofSidecars, true
	}
	return ofSidecars, false
}

// mainContainers takes all containers. The first one that waits or has ended is the
// pod's reason.
func (s *podSummary) mainContainers(p *corev1.Pod) {
	running, failure := false, ""
	for i := range slices.Backward(p.Status.ContainerStatuses) {
		c := &p.Status.ContainerStatuses[i]
		s.restarts.add(c)
		end, wait := c.State.Terminated, c.State.Waiting
		switch {
		case wait != nil && wait.Reason != "":
			s.reason = wait.Reason
		case end != nil:
			s.reason = endReason(end)
			if end.ExitCode != 0 {
				failure = s.reason
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.reason != "Completed" {
		return
	}
	switch { // the pod goes on, or has failed, although a container has completed
	case running && podCondition(p, corev1.PodReady) == corev1.ConditionTrue:
		s.reason = string(corev1.PodRunning)
	case failure != "":
		s.reason = failure
	case running:
		s.reason = "NotReady"
	}
}

func endReason(end *corev1.ContainerStateTerminated) string {
	switch {
	case end.Reason != "":
		return end.Reason
	case end.Signal != 0:
		return fmt.Sprintf("Signal:%d", end.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", end.ExitCode)
}

// podCondition is the status of a pod's condition, "" if it has none of that type.
func podCondition(p *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return ""
	}
	return p.Status.Conditions[i].Status
}

func readinessGates(p *corev1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return "<none>"
	}
	open := 0
	for _, gate := range p.Spec.ReadinessGates {
		if podCondition(p, gate.ConditionType) == corev1.ConditionTrue {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(p.Spec.ReadinessGates))
}

package podgen

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// status returns the status of a pod that started soon after created and is ready.
func status(r source, p *corev1.Pod, node int, created time.Time) corev1.PodStatus {
	scheduled := metav1.NewTime(created.Add(time.Second))
	ready := metav1.NewTime(created.Add(time.Duration(8+r.IntN(50)) * time.Second))
	ip := fmt.Sprintf("100.%d.%d.%d", 64+r.IntN(60), r.IntN(256), 2+r.IntN(250))
	st := corev1.PodStatus{
		Phase:    corev1.PodRunning,
		QOSClass: corev1.PodQOSBurstable,
		Conditions: []corev1.PodCondition{
			condition(corev1.PodInitialized, scheduled),
			condition(corev1.PodReady, ready),
			condition(corev1.ContainersReady, ready),
			condition(corev1.PodScheduled, scheduled),
		},
		HostIP:    nodeIP(node),
		PodIP:     ip,
		PodIPs:    []corev1.PodIP{{IP: ip}},
		StartTime: &scheduled,
	}
	for _, c := range p.Spec.Containers {
		st.ContainerStatuses = append(st.ContainerStatuses, corev1.ContainerStatus{
			Name:        c.Name,
			Image:       c.Image,
			ImageID:     imageID(c.Image),
			ContainerID: "containerd://" + r.hex(64),
			Ready:       true,
			Started:     new(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{
				StartedAt: metav1.NewTime(created.Add(time.Duration(3+r.IntN(5)) * time.Second)),
			}},
		})
	}
	if r.chance(15) {
		restart(r, &st.ContainerStatuses[0], ready.Add(time.Duration(r.IntN(1e6))*time.Second))
	}
	return st
}

func condition(t corev1.PodConditionType, since metav1.Time) corev1.PodCondition {
	return corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: since}
}

// restart replaces the running container at a moment.
func restart(r source, c *corev1.ContainerStatus, at time.Time) {
	started := metav1.NewTime(at.Add(-time.Hour))
	if c.State.Running != nil {
		started = c.State.Running.StartedAt
	}
	end := [][2]any{{int32(137), "OOMKilled"}, {int32(1), "Error"}, {int32(2), "Error"},
		{int32(0), "Completed"}}[r.IntN(4)]
	c.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: end[0].(int32), Reason: end[1].(string), StartedAt: started, FinishedAt: metav1.NewTime(at),
		ContainerID: c.ContainerID,
	}}
	c.RestartCount++
	c.ContainerID = "containerd://" + r.hex(64)
	again := metav1.NewTime(at.Add(2 * time.Second))
	c.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: again}}
}

// Mutate changes pod as its kubelet would: its readiness turns, a container
// restarts, or an annotation moves, by n; the kubelet's managedFields entry
// takes the new time. Calls with growing n give one history: the same pod, n
// and seed give the same change, which always is one.
func (g *Generator) Mutate(pod *corev1.Pod, n int) {
	r := g.source(3, uint64(n))
	now := metav1.NewTime(pod.CreationTimestamp.Add(time.Duration(n+1)*time.Minute +
		time.Duration(r.IntN(60))*time.Second))
	manager := "kubelet"
	switch n % 4 {
	case 0, 2:
		for i := range pod.Status.Conditions {
			c := &pod.Status.Conditions[i]
			if c.Type != corev1.PodReady && c.Type != corev1.ContainersReady {
				continue
			}
			c.LastTransitionTime = now
			if c.Status == corev1.ConditionTrue {
				c.Status, c.Reason = corev1.ConditionFalse, "ContainersNotReady"
				c.Message = fmt.Sprintf("containers with unready status: [%s]", pod.Spec.Containers[0].Name)
			} else {
				c.Status, c.Reason, c.Message = corev1.ConditionTrue, "", ""
			}
		}
		if len(pod.Status.ContainerStatuses) > 0 {
			pod.Status.ContainerStatuses[0].Ready = !pod.Status.ContainerStatuses[0].Ready
		}
	case 1:
		if len(pod.Status.ContainerStatuses) > 0 {
			restart(r, &pod.Status.ContainerStatuses[0], now.Time)
		}
	case 3:
		manager = "sidecar-injector"
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations["autoscaler.example.net/observed-at"] = now.UTC().Format(time.RFC3339)
	}
	for i := range pod.ManagedFields {
		if m := &pod.ManagedFields[i]; m.Manager == manager {
			m.Time = &now
		}
	}
}

package podgen

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	workloads = 1200
	nodes     = 250
)

var (
	namespaces = []string{
		"accounts", "analytics", "billing", "catalog", "checkout", "crm", "default", "fraud", "ingest", "inventory",
		"kube-system", "logistics", "media", "messaging", "monitoring", "orders", "platform", "pricing", "search",
		"staging",
	}
	nouns = []string{
		"api", "audit", "batch", "broker", "cache", "cart", "cron", "dispatcher", "events", "exporter", "feed",
		"gateway",
		"graph", "indexer", "invoice", "ledger", "loader", "mailer", "metrics", "notifier", "planner", "profile",
		"quota",
		"ranking", "reporter", "router", "scheduler", "session", "shipper", "stream", "sync", "thumbnail", "token",
		"vault", "worker",
	}
	teams = []string{"atlas", "borealis", "cobalt", "delta-ops", "ember", "fjord", "gravity", "helix"}
	hosts = []string{"postgres-primary", "redis-sessions", "kafka-bootstrap", "elasticsearch-data", "minio",
		"otel-collector", "auth", "flags"}
	keys = []string{
		"DATABASE", "CACHE", "QUEUE", "TOPIC", "BUCKET", "UPSTREAM", "TRACING", "FEATURE", "RETRY", "POOL", "SESSION",
		"SMTP",
		"LEDGER", "SEARCH", "EXPORT", "REGION",
	}
	words = []string{
		"amber", "basalt", "cinder", "dune", "estuary", "fathom", "granite", "harbor", "isthmus", "juniper", "kelp",
		"lagoon",
		"meadow", "nimbus", "orchid", "pebble", "quarry", "ridge", "sable", "tundra", "umber", "vista", "willow",
		"zephyr",
	}
)

// workload has the parts that the pods of one ReplicaSet share.
type workload struct {
	namespace, name string
	revision        string
	ownerUID        types.UID
	image, digest   string
	checksum        string
	team            string
	port            int
	grace           int64
	priority        int32
	user            int64
	sidecar         bool
	config, secret  bool
	env             []corev1.EnvVar
	extraTolerated  bool
}

func (g *Generator) workload(n int) *workload {
	r := g.source(2, uint64(n))
	w := &workload{
		namespace:      namespaces[n%len(namespaces)],
		revision:       r.suffix(10),
		ownerUID:       r.uid(),
		digest:         r.hex(64),
		checksum:       r.hex(64),
		team:           r.pick(teams),
		port:           8000 + r.IntN(1500),
		grace:          []int64{30, 30, 45, 60}[r.IntN(4)],
		priority:       []int32{0, 0, 1000, 100000}[r.IntN(4)],
		user:           1000 + int64(r.IntN(9000)),
		sidecar:        r.chance(45),
		config:         r.chance(60),
		secret:         r.chance(50),
		extraTolerated: r.chance(25),
	}
	w.name = r.pick(words) + "-" + nouns[n%len(nouns)]
	w.image = fmt.Sprintf("registry.example.net/%s/%s:%d.%d.%d", w.team, w.name, r.IntN(4)+1, r.IntN(40), r.IntN(20))
	w.secret = w.secret && !(w.sidecar && w.config)
	for i := range 40 {
		v := w.variable(r, i)
		if !slices.ContainsFunc(w.env, func(o corev1.EnvVar) bool { return o.Name == v.Name }) {
			w.env = append(w.env, v)
		}
	}
	return w
}

// variable is one setting: mostly a literal, now and then a reference.
func (w *workload) variable(r source, i int) corev1.EnvVar {
	name := keys[i%len(keys)]
	switch r.IntN(7) {
	case 0:
		return corev1.EnvVar{Name: name + "_PASSWORD",
			ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: w.name + "-credentials"},
				Key:                  r.pick(words) + "-password",
			}}}
	case 1:
		return corev1.EnvVar{Name: name + "_URL", Value: fmt.Sprintf("http://%s.%s.svc:%d/v%d/%s",
			r.pick(hosts), r.pick(namespaces), 1024+r.IntN(9000), r.IntN(3)+1, r.pick(words))}
	case 2:
		return corev1.EnvVar{Name: name + "_TIMEOUT_MS", Value: strconv.Itoa(50 * (1 + r.IntN(200)))}
	case 3:
		return corev1.EnvVar{Name: name + "_KEY_ID", Value: r.hex(24)}
	case 4:
		return corev1.EnvVar{Name: name + "_MODE", Value: r.pick(words) + "," + r.pick(words)}
	case 5:
		return corev1.EnvVar{Name: name + "_HOST",
			Value: r.pick(hosts) + "." + r.pick(namespaces) + ".svc.cluster.local"}
	default:
		return corev1.EnvVar{Name: name + "_PREFIX", Value: r.pick(words) + "/" + r.pick(nouns) + "/" + r.suffix(6)}
	}
}

func (w *workload) podLabels(r source) map[string]string {
	l := map[string]string{
		"app.kubernetes.io/name":       w.name,
		"app.kubernetes.io/instance":   w.name + "-" + w.namespace,
		"app.kubernetes.io/managed-by": "Helm",
		"pod-template-hash":            w.revision,
		"team":                         w.team,
	}
	if w.sidecar {
		l["mesh.example.net/revision"] = "1-24"
	}
	if r.chance(30) {
		l["topology.example.net/cell"] = r.pick(words)
	}
	return l
}

func (w *workload) podAnnotations(r source, created time.Time) map[string]string {
	a := map[string]string{
		"checksum/config":    w.checksum,
		"prometheus.io/port": strconv.Itoa(w.port),
	}
	if w.sidecar {
		a["sidecar.mesh.example.net/status"] = fmt.Sprintf(
			`{"version":"%s","containers":["mesh-proxy"],"injectedAt":"%s"}`, r.hex(16), created.Format(time.RFC3339))
	}
	if r.chance(20) {
		a["kubectl.kubernetes.io/restartedAt"] = created.Add(-time.Minute).Format(time.RFC3339)
	}
	return a
}

func (w *workload) tolerations() []corev1.Toleration {
	t := []corev1.Toleration{
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
			TolerationSeconds: new(int64(300))},
		{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
			TolerationSeconds: new(int64(300))},
	}
	if w.extraTolerated {
		t = append(t, corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: w.team,
			Effect: corev1.TaintEffectNoSchedule})
	}
	return t
}

func (w *workload) volumes() []corev1.Volume {
	var v []corev1.Volume
	if w.config {
		v = append(v, corev1.Volume{Name: "config",
			VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: w.name + "-config"},
				DefaultMode:          new(int32(0o644)),
			}}})
	}
	if w.secret {
		v = append(v, corev1.Volume{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: w.name + "-tls", DefaultMode: new(int32(0o400)),
		}}})
	}
	return v
}

// container is the workload's own container, with no variables yet.
func (w *workload) container(token string) corev1.Container {
	c := corev1.Container{
		Name:  w.name,
		Image: w.image,
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: int32(w.port),
			Protocol: corev1.ProtocolTCP}},
		Resources: resources(fmt.Sprintf("%dm", 50+w.port%9*50), fmt.Sprintf("%dMi", 64<<(w.port%5)),
			"", fmt.Sprintf("%dMi", 128<<(w.port%5))),
		ReadinessProbe:           httpProbe("/readyz", w.port, 3),
		ImagePullPolicy:          corev1.PullIfNotPresent,
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
	if !w.sidecar && !w.config {
		c.LivenessProbe = httpProbe("/livez", w.port, 15)
	}
	if !w.sidecar {
		c.SecurityContext = &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
	}
	if w.config {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "config", MountPath: "/etc/" + w.name})
	}
	if w.secret {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "tls", ReadOnly: true, MountPath: "/etc/tls"})
	}
	c.VolumeMounts = append(c.VolumeMounts, tokenMount(token))
	return c
}

// fill adds the workload's variables to c, more of them the less else the pod
// has, so that all pods are of similar size.
func (w *workload) fill(r source, c *corev1.Container) {
	budget := envBudget + r.IntN(500)
	for cost, has := range map[int]bool{sidecarCost: w.sidecar, configCost: w.config, secretCost: w.secret,
		150: w.extraTolerated} {
		if has {
			budget -= cost
		}
	}
	for _, v := range w.env {
		size := 60 + 2*len(v.Name) + len(v.Value) // in spec and managedFields
		if v.ValueFrom != nil {
			size = 290 + 2*len(v.Name)
		}
		if budget < size {
			break
		}
		budget -= size
		c.Env = append(c.Env, v)
	}
	slices.SortFunc(c.Env, func(a, b corev1.EnvVar) int { return cmp.Compare(a.Name, b.Name) })
}

// The bytes that the optional parts of a pod add to its JSON, and those left for
// variables in a pod without them.
const (
	sidecarCost = 850
	configCost  = 50
	secretCost  = 310
	envBudget   = 700
)

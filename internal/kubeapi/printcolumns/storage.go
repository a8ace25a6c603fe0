package printcolumns

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func init() {
	register(func() []metav1.TableColumnDefinition {
		spec, status := corev1.PersistentVolumeSpec{}.SwaggerDoc(), corev1.PersistentVolumeStatus{}.SwaggerDoc()
		return []metav1.TableColumnDefinition{
			name(), text("Capacity", spec["capacity"]), text("Access Modes", spec["accessModes"]),
			text("Reclaim Policy", spec["persistentVolumeReclaimPolicy"]), text("Status", status["phase"]),
			text("Claim", spec["claimRef"]),
			text("StorageClass", "StorageClass of the pv"),
			text("VolumeAttributesClass", "VolumeAttributesClass of the pv"),
			text("Reason", status["reason"]), age(), wide("VolumeMode", spec["volumeMode"]),
		}
	}, volume)
	register(func() []metav1.TableColumnDefinition {
		spec, status := corev1.PersistentVolumeClaimSpec{}.SwaggerDoc(),
			corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()
		return []metav1.TableColumnDefinition{
			name(), text("Status", status["phase"]), text("Volume", spec["volumeName"]),
			text("Capacity", status["capacity"]),
			text("Access Modes", status["accessModes"]), text("StorageClass", "StorageClass of the pvc"),
			text("VolumeAttributesClass", "VolumeAttributesClass of the pvc"), age(),
			wide("VolumeMode", spec["volumeMode"]),
		}
	}, claim)
	register(func() []metav1.TableColumnDefinition {
		doc := storagev1.StorageClass{}.SwaggerDoc()
		return []metav1.TableColumnDefinition{
			name(), text("Provisioner", doc["provisioner"]), text("ReclaimPolicy", doc["reclaimPolicy"]),
			text("VolumeBindingMode", doc["volumeBindingMode"]),
			text("AllowVolumeExpansion", doc["allowVolumeExpansion"]), age(),
		}
	}, storageClass)
}

func volume(v *corev1.PersistentVolume, now time.Time) []any {
	claim := ""
	if ref := v.Spec.ClaimRef; ref != nil {
		claim = ref.Namespace + "/" + ref.Name
	}
	class, ok := v.Annotations[corev1.BetaStorageClassAnnotation]
	if !ok {
		class = v.Spec.StorageClassName
	}
	return []any{v.Name, v.Spec.Capacity.Storage().String(), accessModes(v.Spec.AccessModes),
		string(v.Spec.PersistentVolumeReclaimPolicy),
		phase(v, string(v.Status.Phase)), claim, class, orOf(v.Spec.VolumeAttributesClassName, "<unset>"),
		v.Status.Reason,
		ageOf(v, now), orOf(v.Spec.VolumeMode, "<unset>")}
}

func claim(c *corev1.PersistentVolumeClaim, now time.Time) []any {
	capacity, modes := "", ""
	if c.Spec.VolumeName != "" {
		capacity, modes = c.Status.Capacity.Storage().String(), accessModes(c.Status.AccessModes)
	}
	class, ok := c.Annotations[corev1.BetaStorageClassAnnotation]
	if !ok {
		class = ptr.Deref(c.Spec.StorageClassName, "")
	}
	return []any{c.Name, phase(c, string(c.Status.Phase)), c.Spec.VolumeName, capacity, modes, class,
		orOf(c.Spec.VolumeAttributesClassName, "<unset>"), ageOf(c, now), orOf(c.Spec.VolumeMode, "<unset>")}
}

// phase is the object's own phase, unless it is being deleted.
func phase(o metav1.Object, says string) string {
	if o.GetDeletionTimestamp() != nil {
		return "Terminating"
	}
	return says
}

// accessModes are in the order in which they are always shown.
func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var short []string
	for _, m := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{
		{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"},
		{corev1.ReadWriteOncePod, "RWOP"},
	} {
		if slices.Contains(modes, m.mode) {
			short = append(short, m.short)
		}
	}
	return strings.Join(short, ",")
}

func storageClass(c *storagev1.StorageClass, now time.Time) []any {
	name := c.Name
	if c.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" ||
		c.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true" {
		name += " (default)"
	}
	return []any{name, c.Provisioner, orOf(c.ReclaimPolicy, string(corev1.PersistentVolumeReclaimDelete)),
		orOf(c.VolumeBindingMode, string(storagev1.VolumeBindingImmediate)), ptr.Deref(c.AllowVolumeExpansion, false),
		ageOf(c, now)}
}

package main

import (
	"fmt"
	"time"
)

// queue is the content of custom resource i.
func queue(i int) map[string]any {
	tenant := fmt.Sprint("tenant-", i%40)
	at := func(n int) any {
		return time.Unix(1_760_000_000+int64(i)*613+int64(n), 0).UTC().Format(time.RFC3339)
	}
	condition := func(typ, status, reason, message string) any {
		return map[string]any{"type": typ, "status": status, "reason": reason, "message": message,
			"lastTransitionTime": at(i % 50)}
	}
	return map[string]any{
		"apiVersion": "mq.acme.dev/v1beta2", "kind": "Queue",
		"metadata": map[string]any{
			"name": fmt.Sprint("orders-", hex(i, 6)), "namespace": tenant, "uid": hex(i+1, 32),
			"resourceVersion": fmt.Sprint(i + 1), "generation": int64(2), "creationTimestamp": at(0),
			"finalizers": []any{"mq.acme.dev/drain"},
			"labels": map[string]any{"acme.dev/tenant": tenant, "acme.dev/tier": []string{"gold", "silver"}[i%2],
				"app.kubernetes.io/part-of": "billing"},
			"managedFields": []any{
				map[string]any{"manager": "acmectl", "operation": "Apply", "apiVersion": "mq.acme.dev/v1beta2",
					"fieldsType": "FieldsV1", "time": at(1), "fieldsV1": map[string]any{
						"f:metadata": map[string]any{"f:labels": owned("acme.dev/tenant", "acme.dev/tier")},
						"f:spec":     owned("partitions", "retention", "durable", "deadLetter", "consumers")}},
				map[string]any{"manager": "mq-operator", "operation": "Update", "apiVersion": "mq.acme.dev/v1beta2",
					"fieldsType": "FieldsV1", "time": at(9), "subresource": "status", "fieldsV1": map[string]any{
						"f:status": owned("conditions", "depth", "endpoint", "observedGeneration")}},
			},
		},
		"spec": map[string]any{"partitions": int64(i%16 + 1), "retention": "168h", "durable": true,
			"deadLetter": map[string]any{"queue": fmt.Sprint("dead-", hex(i, 6)), "maxDeliveries": int64(5)},
			"consumers": []any{map[string]any{"name": "invoicer", "prefetch": int64(20)},
				map[string]any{"name": "archiver", "prefetch": int64(100)}}},
		"status": map[string]any{"depth": int64(i * 31 % 977), "observedGeneration": int64(2),
			"endpoint": fmt.Sprintf("amqp://mq-%d.acme.internal:5672", i%7),
			"conditions": []any{condition("Ready", "True", "Bound", "the queue takes messages"),
				condition("Drained", "False", "HasMessages", "")}},
	}
}

func owned(names ...string) map[string]any {
	m := map[string]any{}
	for _, n := range names {
		m["f:"+n] = map[string]any{}
	}
	return m
}

{{/* A legal object name for a pool; pools may have capitals and underscores. */}}
{{- define "planner.objectName" -}}
{{- . | lower | replace "_" "-" -}}
{{- end -}}

{{/* What is scaled. Takes (list root pool). */}}
{{- define "planner.scaleTargetRef" -}}
{{- $root := index . 0 -}}{{- $pool := index . 1 -}}
{{- $target := mergeOverwrite (deepCopy $root.Values.autoscaling.scaleTargetRef) (default (dict) $pool.own.scaleTargetRef) -}}
apiVersion: {{ $target.apiVersion }}
kind: {{ $target.kind }}
name: {{ default (include "planner.objectName" $pool.pool) $target.name }}
{{- end -}}

{{/* {"min": .., "max": ..} of the object. Takes (list root pool). */}}
{{- define "planner.limits" -}}
{{- $pool := index . 1 -}}
{{- $min := hasKey $pool.own "minReplicaCount" | ternary $pool.own.minReplicaCount $pool.min | int -}}
{{- $max := int (default $pool.max $pool.own.maxReplicaCount) -}}
{{- if gt $min (int $pool.min) -}}
{{- fail (printf "autoscaling.pools.%s.minReplicaCount: %d is above the pool's min_replicas of %d, which could not be reached" $pool.pool $min (int $pool.min)) -}}
{{- end -}}
{{- if lt $max (int $pool.max) -}}
{{- fail (printf "autoscaling.pools.%s.maxReplicaCount: %d is below the pool's max_replicas of %d, which could not be reached" $pool.pool $max (int $pool.max)) -}}
{{- end -}}
{{- if and (eq $min 0) (not $pool.own.demandQuery) -}}
{{- fail (printf "autoscaling.pools.%s.minReplicaCount: recommendations are at least 1, so 0 needs a demandQuery that says when nothing is asked for" $pool.pool) -}}
{{- end -}}
{{- dict "min" $min "max" $max | toJson -}}
{{- end -}}

{{/* Whether an HPA may say its tolerance. */}}
{{- define "planner.tolerance" -}}
{{- $wish := .Values.autoscaling.tolerance -}}
{{- if or (eq $wish "always") (and (eq $wish "auto") (semverCompare ">=1.33.0-0" (include "planner.kubeVersion" .))) -}}true{{- end -}}
{{- end -}}

{{/* The behavior of an HPA. Takes (list root max tolerant). */}}
{{- define "planner.behavior" -}}
{{- $root := index . 0 -}}{{- $max := index . 1 -}}{{- $tolerant := index . 2 -}}
{{- range $direction := list "scaleUp" "scaleDown" }}
{{- $settings := index $root.Values.autoscaling $direction }}
{{ $direction }}:
  {{- if $tolerant }}
  tolerance: 0
  {{- end }}
  stabilizationWindowSeconds: {{ int $settings.stabilizationWindowSeconds }}
  policies:
    {{- if $settings.policies }}
    {{- toYaml $settings.policies | nindent 4 }}
    {{- else }}
    - { type: Pods, value: {{ $max }}, periodSeconds: 15 }
    {{- end }}
{{- end }}
{{- end -}}

{{/* Takes (list root pool). */}}
{{- define "planner.prometheusTrigger" -}}
{{- $root := index . 0 -}}{{- $pool := index . 1 -}}
- type: prometheus
  name: recommended
  metricType: AverageValue
  metadata:
    serverAddress: {{ $root.Values.autoscaling.prometheus }}
    query: max by (target_namespace, pool) (inference_planner_recommended_replicas{target_namespace={{ $pool.namespace | quote }},pool={{ $pool.pool | quote }}})
    threshold: "1"
    activationThreshold: "0"
    # KEDA's default takes a missing series for 0.
    ignoreNullValues: "false"
    {{- with $root.Values.autoscaling.authModes }}
    authModes: {{ . }}
    {{- end }}
  {{- with $root.Values.autoscaling.authentication }}
  authenticationRef:
    name: {{ . }}
  {{- end }}
{{- end -}}

{{/* Takes (list root pool). */}}
{{- define "planner.metricsApiTrigger" -}}
{{- $root := index . 0 -}}{{- $pool := index . 1 -}}
{{- if gt (int $root.Values.replicas) 1 -}}
{{- fail (printf "autoscaling.type %s: the Service would answer from either of %d replicas; use keda-prometheus with more than one" $root.Values.autoscaling.type (int $root.Values.replicas)) -}}
{{- end -}}
{{- if gt (int $root.Values.shards) 1 -}}
{{- fail (printf "autoscaling.type %s: the Service would answer from any of %d shards, of which one plans the pool; use keda-prometheus with more than one" $root.Values.autoscaling.type (int $root.Values.shards)) -}}
{{- end -}}
- type: metrics-api
  name: direct
  metricType: AverageValue
  metadata:
    url: {{ $root.Values.web.scheme }}://{{ include "planner.fullname" $root }}.{{ $root.Release.Namespace }}.svc:{{ int $root.Values.service.port }}/metrics/pool/{{ $pool.pool }}
    format: prometheus
    valueLocation: inference_planner_recommended_replicas
    targetValue: "1"
    activationTargetValue: "0"
    {{- with $root.Values.web.authMode }}
    authMode: {{ . | quote }}
    {{- end }}
  {{- with $root.Values.web.authentication }}
  authenticationRef:
    name: {{ . }}
  {{- end }}
{{- end -}}

{{/* The pods that are there: what a pool keeps while it is blind. Takes (list root pool). */}}
{{- define "planner.presentTrigger" -}}
{{- $pool := index . 1 -}}
- type: kubernetes-workload
  name: present
  metadata:
    podSelector: {{ required (printf "autoscaling.pools.%s.podSelector: the pool's pods are counted while it is blind; give their labels, such as \"app=decode\"" $pool.pool) $pool.own.podSelector | quote }}
    value: "1"
{{- end -}}

{{/* Whether there is anything to do for this pool. Takes (list root pool). */}}
{{- define "planner.demandTrigger" -}}
{{- $root := index . 0 -}}{{- $pool := index . 1 -}}
- type: prometheus
  name: demand
  metricType: AverageValue
  metadata:
    serverAddress: {{ $root.Values.autoscaling.prometheus }}
    query: {{ $pool.own.demandQuery | quote }}
    threshold: "1"
    ignoreNullValues: "false"
    {{- with $root.Values.autoscaling.authModes }}
    authModes: {{ . }}
    {{- end }}
  {{- with $root.Values.autoscaling.authentication }}
  authenticationRef:
    name: {{ . }}
  {{- end }}
{{- end -}}

{{/* How several triggers become one count; empty where one trigger says it. Takes (list root pool). */}}
{{- define "planner.formula" -}}
{{- $root := index . 0 -}}{{- $pool := index . 1 -}}
{{- $count := dict "keda-prometheus" "recommended" "keda-metrics-api" "direct" "keda-both" "recommended ?? direct" -}}
{{- $known := printf "%s ?? present" (get $count $root.Values.autoscaling.type) -}}
{{- if $pool.own.demandQuery -}}
(demand ?? 1.0) > 0.0 ? max({{ $known }}, 1.0) : 0.0
{{- else if eq $root.Values.autoscaling.type "keda-both" -}}
{{ $known }}
{{- end -}}
{{- end -}}

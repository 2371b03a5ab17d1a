{{- define "planner.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "planner.fullname" -}}
{{- $name := include "planner.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "planner.selectorLabels" -}}
app.kubernetes.io/name: {{ include "planner.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The shards that there are: {"shards": [{"index": 0, "name": .., "claim": ..}]}; a single one has no number. */}}
{{- define "planner.shards" -}}
{{- $shards := int .Values.shards -}}
{{- if gt $shards 1 -}}
{{- if eq .Values.workload "sidecar" -}}
{{- fail "shards: a sidecar of the only router plans all of its models; use workload deployment with more than one shard" -}}
{{- end -}}
{{- if and (eq .Values.state.kind "persistentVolumeClaim") .Values.state.existingClaim -}}
{{- fail "state.existingClaim: each shard needs a volume of its own; leave it empty with more than one shard" -}}
{{- end -}}
{{- range .Values.config.models -}}
{{- if or (not .name) (eq .name "*") -}}
{{- fail "shards: expected models with names: one that is found on the targets' pages cannot be left to another shard without reading them" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $found := list -}}
{{- range $index := until $shards -}}
{{- $suffix := gt $shards 1 | ternary (printf "-%d" $index) "" -}}
{{- $name := printf "%s%s" (include "planner.fullname" $ | trunc (sub 63 (len $suffix) | int) | trimSuffix "-") $suffix -}}
{{- $found = append $found (dict "index" $index "name" $name "claim" (default (printf "%s-state%s" (include "planner.fullname" $) $suffix) $.Values.state.existingClaim)) -}}
{{- end -}}
{{- dict "shards" $found | toJson -}}
{{- end -}}

{{/* Whose pods they are: of one of several shards. Takes (list root index). */}}
{{- define "planner.shardLabels" -}}
{{- $root := index . 0 -}}
{{- include "planner.selectorLabels" $root }}
{{- if gt (int $root.Values.shards) 1 }}
app.kubernetes.io/component: shard-{{ index . 1 }}
{{- end }}
{{- end -}}

{{- define "planner.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "planner.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The pods behind the Service. */}}
{{- define "planner.podSelector" -}}
{{- if eq .Values.workload "sidecar" -}}
{{- if not .Values.sidecar.podLabels -}}
{{- fail "sidecar.podLabels: workload sidecar needs the labels of the router's pods" -}}
{{- end -}}
{{- toYaml .Values.sidecar.podLabels -}}
{{- else -}}
{{- include "planner.selectorLabels" . -}}
{{- end -}}
{{- end -}}

{{- define "planner.kubeVersion" -}}
{{- default .Capabilities.KubeVersion.Version .Values.kubeVersion -}}
{{- end -}}

{{/* The exporter's configuration with what only the chart knows. */}}
{{- define "planner.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $server := default (dict) $config.server -}}
{{- if not $server.listen -}}{{- $_ := set $server "listen" (printf "0.0.0.0:%d" (int .Values.service.port)) -}}{{- end -}}
{{- if not (hasSuffix (printf ":%d" (int .Values.service.port)) $server.listen) -}}
{{- fail (printf "config.server.listen: %s has another port than service.port, which is %d" $server.listen (int .Values.service.port)) -}}
{{- end -}}
{{- $_ := set $config "server" $server -}}
{{- if ne .Values.state.kind "none" -}}
{{- $_ := set $config "state_file" "/var/lib/inference-planner/state.json" -}}
{{- end -}}
{{- range $config.models -}}
{{- if not .target_namespace -}}{{- $_ := set . "target_namespace" $.Release.Namespace -}}{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The pools with their models and what scales them: {"pools": [{pool, model, namespace, mode, min, max, own}]}. */}}
{{- define "planner.pools" -}}
{{- $found := list -}}
{{- $settings := .Values.autoscaling.pools -}}
{{- range $model := (include "planner.config" . | fromYaml).models -}}
{{- range $pool := $model.pools -}}
{{- $own := default (dict) (get $settings $pool.name) -}}
{{- $min := int (default 1 $pool.min_replicas) -}}
{{- $found = append $found (dict "pool" $pool.name "model" (default "" $model.name) "namespace" $model.target_namespace "mode" (default "publish" $model.mode) "min" $min "max" (int $pool.max_replicas) "own" $own) -}}
{{- end -}}
{{- end -}}
{{- $names := list -}}
{{- range $found -}}{{- $names = append $names .pool -}}{{- end -}}
{{- range $name, $_ := $settings -}}
{{- if not (has $name $names) -}}
{{- fail (printf "autoscaling.pools.%s: config.models has no pool of that name; it has %s" $name (join ", " $names)) -}}
{{- end -}}
{{- end -}}
{{- dict "pools" $found | toJson -}}
{{- end -}}

{{/* Pools that an object shall follow. */}}
{{- define "planner.followed" -}}
{{- $found := list -}}
{{- if ne .Values.autoscaling.type "none" -}}
{{- range (include "planner.pools" . | fromJson).pools -}}
{{- if and (ne .mode "shadow") (ne (toString .own.enabled) "false") -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "pools" $found | toJson -}}
{{- end -}}

{{/* What the targets need of the API server, by namespace: {"llm": {"pods": true, "endpointslices": true}}. */}}
{{- define "planner.discovery" -}}
{{- $namespaces := dict -}}
{{- $sections := list -}}
{{- range .Values.config.models -}}
{{- if .traffic -}}{{- $sections = append $sections (default (dict) .traffic.targets) -}}{{- end -}}
{{- range .pools -}}{{- $sections = append $sections (default (dict) .targets) -}}{{- end -}}
{{- end -}}
{{- range $sections -}}
{{- with .kubernetes -}}
{{- $namespace := default $.Release.Namespace .namespace -}}
{{- $needs := default (dict) (get $namespaces $namespace) -}}
{{- if .service -}}{{- $_ := set $needs "endpointslices" true -}}{{- end -}}
{{- if .selector -}}{{- $_ := set $needs "pods" true -}}{{- end -}}
{{- $_ := set $namespaces $namespace $needs -}}
{{- end -}}
{{- end -}}
{{- toJson $namespaces -}}
{{- end -}}

{{- define "planner.discovers" -}}
{{- if include "planner.discovery" . | fromJson -}}true{{- end -}}
{{- end -}}

{{- define "planner.serviceAccountName" -}}
{{- default (include "planner.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "planner.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* A kubelet checks no certificate, and needs none for the health pages. */}}
{{- define "planner.probeScheme" -}}
{{- if eq .Values.web.scheme "https" }}, scheme: HTTPS{{ end -}}
{{- end -}}

{{/* How Prometheus reads the port. */}}
{{- define "planner.endpointAccess" -}}
{{- if eq .Values.web.scheme "https" }}
scheme: https
{{- end }}
{{- range $key := list "tlsConfig" "basicAuth" }}
{{- with index $.Values.web $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The container, in a Deployment or for the notes of a sidecar. Takes (list root index). */}}
{{- define "planner.container" -}}
{{- $index := index . 1 -}}
{{- with index . 0 -}}
name: exporter
image: {{ include "planner.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  - run
  - --config
  - /etc/inference-planner/config.yaml
  {{- if gt (int .Values.shards) 1 }}
  - --shard
  - {{ $index }}/{{ int .Values.shards }}
  {{- end }}
  {{- if ne .Values.logFormat "text" }}
  - --log-format
  - {{ .Values.logFormat }}
  {{- end }}
  {{- with .Values.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.env }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - name: http-metrics
    containerPort: {{ int .Values.service.port }}
    protocol: TCP
livenessProbe:
  httpGet: { path: /-/healthy, port: http-metrics{{ include "planner.probeScheme" . }} }
  {{- toYaml .Values.livenessProbe | nindent 2 }}
readinessProbe:
  httpGet: { path: /-/ready, port: http-metrics{{ include "planner.probeScheme" . }} }
  {{- toYaml .Values.readinessProbe | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
  # The whole directory, no subPath: the kubelet updates a ConfigMap by swapping a symlink in it.
  - name: config
    mountPath: /etc/inference-planner
    readOnly: true
  {{- if ne .Values.state.kind "none" }}
  - name: state
    mountPath: /var/lib/inference-planner
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* Takes (list root claim). */}}
{{- define "planner.volumes" -}}
{{- $claim := index . 1 -}}
{{- with index . 0 -}}
- name: config
  configMap:
    name: {{ include "planner.fullname" . }}
{{- if eq .Values.state.kind "emptyDir" }}
- name: state
  emptyDir: {}
{{- else if eq .Values.state.kind "persistentVolumeClaim" }}
- name: state
  persistentVolumeClaim:
    claimName: {{ $claim }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The job's name is part of the alerts, so every monitor writes the same one. */}}
{{- define "planner.relabelings" -}}
- targetLabel: job
  replacement: inference-planner-exporter
{{- with . }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* What pods of agentd have in common: their environment, and the files that they are given. */ -}}
{{- define "agentd.env" -}}
{{- $v := .Values -}}
{{- if not $v.nats.urlKey }}
- {name: NATS_URL, value: {{ $v.nats.url | quote }}}
{{- else }}
- name: NATS_URL
  valueFrom: {secretKeyRef: {name: {{ required "nats.urlKey needs nats.existingSecret" $v.nats.existingSecret }}, key: {{ $v.nats.urlKey }}}}
{{- end }}
{{- if $v.nats.credsKey }}
- {name: NATS_CREDS, value: /etc/agentd-nats/user.creds}
{{- end }}
{{- if $v.nats.tlsSecret }}
# The system's authorities and this one.
- {name: SSL_CERT_DIR, value: "/etc/ssl/certs:/etc/agentd-tls"}
{{- end }}
{{- if $v.redis.existingSecret }}
- name: REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ $v.redis.existingSecret }}, key: {{ $v.redis.urlKey }}}}
{{- end }}
- {name: AGENTD_SLOTS, value: {{ $v.worker.slots | quote }}}
- {name: AGENTD_LOG_FORMAT, value: json}
- {name: AGENTD_LOG_LEVEL, value: {{ $v.worker.logLevel }}}
{{- if $v.telemetry.endpoint }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ $v.telemetry.endpoint | quote }}}
- {name: OTEL_SERVICE_NAME, value: {{ include "agentd.name" . }}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- {name: OTEL_RESOURCE_ATTRIBUTES, value: "k8s.pod.name=$(POD_NAME),k8s.namespace.name={{ .Release.Namespace }}"}
{{- end }}
{{- if $v.telemetry.captureContent }}
- {name: OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT, value: "true"}
{{- end }}
{{- range $name, $value := $v.env }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- range $v.secretEnv }}
- name: {{ .env }}
  valueFrom: {secretKeyRef: {name: {{ .name }}, key: {{ .key }}}}
{{- end }}
{{- end }}

{{- define "agentd.mounts" -}}
{{- $v := .Values -}}
- {name: config, mountPath: /etc/agentd, readOnly: true}
{{- if $v.nats.credsKey }}
- {name: nats, mountPath: /etc/agentd-nats, readOnly: true}
{{- end }}
{{- if $v.nats.tlsSecret }}
- {name: tls, mountPath: /etc/agentd-tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "agentd.volumes" -}}
{{- $v := .Values -}}
- name: config
  configMap:
    {{- if $v.config.existingConfigMap }}
    name: {{ $v.config.existingConfigMap }}
    {{- else }}
    name: {{ include "agentd.name" . }}
    items:
      {{- range $path, $text := $v.config.files }}
      - {key: {{ include "agentd.key" $path }}, path: {{ $path }}}
      {{- end }}
    {{- end }}
{{- if $v.nats.credsKey }}
- name: nats
  secret:
    secretName: {{ required "nats.credsKey needs nats.existingSecret" $v.nats.existingSecret }}
    items:
      - {key: {{ $v.nats.credsKey }}, path: user.creds}
{{- end }}
{{- if $v.nats.tlsSecret }}
- name: tls
  secret:
    secretName: {{ $v.nats.tlsSecret }}
    items:
      - {key: ca.crt, path: ca.crt}
{{- end }}
{{- end }}

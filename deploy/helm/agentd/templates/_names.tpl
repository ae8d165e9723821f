{{- define "agentd.name" -}}
{{- ternary .Release.Name (printf "%s-agentd" .Release.Name) (contains "agentd" .Release.Name) | trunc 52 | trimSuffix "-" -}}
{{- end }}

{{- define "agentd.selector" -}}
app.kubernetes.io/name: agentd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "agentd.labels" -}}
{{ include "agentd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "agentd.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- /* A path as a key of a ConfigMap, which may hold no slash. */ -}}
{{- define "agentd.key" -}}
{{- replace "/" "__" . -}}
{{- end }}

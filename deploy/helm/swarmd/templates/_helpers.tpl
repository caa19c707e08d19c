{{- define "swarmd.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "swarmd.tight" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{- /* A member's swarmd.toml. A text as JSON is a text as TOML. */}}
{{- define "swarmd.config" -}}
[node]
name = {{ .member.name | toJson }}

[swarm]
identity = "/run/identity"
join = {{ .join | toJson }}

[transport]
listen = "[::]:{{ .member.gossipPort }}"

[http]
listen = "127.0.0.1:{{ .member.pagePort }}"

[eye]
enabled = false
{{ with .member.config }}
{{ . }}
{{- end }}
{{- end }}

"""Text and files: YAML, JSONPath, numbers and times as Go prints them, manifests, kubeconfigs and certificates."""

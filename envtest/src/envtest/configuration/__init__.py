"""What a control plane is configured with: the Kubernetes version, feature gates, controllers and the network."""

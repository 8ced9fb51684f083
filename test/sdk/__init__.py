"""CodeFlare SDK against the operator on the embedded control plane; needs the SDK's interpreter (``make test-sdk``)."""

"""CodeFlare SDK against the operator on the embedded control plane; needs the SDK's interpreter (``make test-sdk``)."""

import os
from pathlib import Path

RELEASES = Path(os.environ.get("CODEFLARE_SDK") or "unset")
"""The folder with a virtual environment for each release of the SDK."""

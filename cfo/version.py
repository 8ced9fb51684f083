"""The version, and a name that commands show in their help, without importing anything else.

``python -m hack.release`` writes the version here, in ``envtest`` and in ``handlers``.
"""

__version__ = "0.1.0"
CONFIG_MAP_NAME = "codeflare-operator-config"
"""The default name of the ConfigMap with the configuration."""

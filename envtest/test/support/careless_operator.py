"""A deliberately wrong operator that needs only the standard library: it creates another child whenever it starts.

Usage: careless_operator.py [PIDFILE]; it also starts a process of its own, as operators with plugins do.
"""

import base64
import contextlib
import json
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

VALUES = dict(
    re.findall(r"([a-z-]+): (\S+)$", Path(os.environ["KUBECONFIG"]).read_text(), re.MULTILINE)
)
SERVER, TOKEN = VALUES["server"], VALUES["token"]
CONTEXT = ssl.create_default_context(
    cadata=base64.b64decode(VALUES["certificate-authority-data"]).decode()
)
CONTEXT.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def request(method, path, body=None):
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    prepared = urllib.request.Request(SERVER + path, data, headers, method=method)
    with urllib.request.urlopen(prepared, context=CONTEXT, timeout=100) as response:
        return json.load(response)


child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
if sys.argv[1:]:
    with Path(sys.argv[1]).open("a") as pids:
        pids.write(f"{os.getpid()} {child.pid}\n")
print("starting", flush=True)
while True:
    with contextlib.suppress(urllib.error.URLError, OSError):
        request("POST", CONFIG_MAPS, {"metadata": {"generateName": "child-"}})
        break
    time.sleep(0.2)
time.sleep(300)

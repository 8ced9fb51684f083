"""Why a container waits until someone acts."""

from __future__ import annotations

from typing import Final

WAITING_REASONS: Final = {
    "ImagePullBackOff": "check the name of the image, and the pull secret of the ServiceAccount",
    "ErrImagePull": "check the name of the image, and the pull secret of the ServiceAccount",
    "ErrImageNeverPull": "load the image on the node, or set another imagePullPolicy",
    "InvalidImageName": "correct the name of the image",
    "CrashLoopBackOff": "",  # read the log
    "CreateContainerConfigError": "create the ConfigMap or Secret that the container refers to",
    "CreateContainerError": "check the command and the volumes of the container",
    "RunContainerError": "check the command of the container",
}
"""Reasons for which a container waits until someone acts, with the remedy. Source: kubelet."""

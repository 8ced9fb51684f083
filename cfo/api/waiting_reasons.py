"""Why a container waits until someone acts."""

from __future__ import annotations

from typing import Final

CRASH_LOOP: Final = "CrashLoopBackOff"

OOM_KILLED: Final = "OOMKilled"
"""The reason for which a container ended that used more memory than its limit; then it waits with another one."""

CREATING_REASONS: Final = ("ContainerCreating", "PodInitializing")
"""Why containers wait that kubelet has not created yet; the second one is that of pods with init containers."""

WAITING_REASONS: Final = {
    "ImagePullBackOff": "check the name of the image, and the pull secret of the ServiceAccount",
    "ErrImagePull": "check the name of the image, and the pull secret of the ServiceAccount",
    "ErrImageNeverPull": "load the image on the node, or set another imagePullPolicy",
    "InvalidImageName": "correct the name of the image",
    CRASH_LOOP: "",  # read the log
    OOM_KILLED: "raise the memory limit of the container",
    "CreateContainerConfigError": "create the ConfigMap or Secret that the container refers to",
    "CreateContainerError": "check the command and the volumes of the container",
    "RunContainerError": "check the command of the container",
}
"""Reasons for which a container waits until someone acts, with the remedy. Source: kubelet."""

"""The service account controllers: default accounts, token Secrets and the CA ConfigMap of each namespace."""

from __future__ import annotations

import base64
from typing import Final, NamedTuple

from envtest.apimachinery.errors import GroupResource
from envtest.apimachinery.objects import Object
from envtest.controllers.controller import Controller
from envtest.storage import Change

__all__ = ["DefaultAccounts", "RootCertificates", "TokenSecrets"]

NAMESPACES: Final = GroupResource("", "namespaces")
ACCOUNTS: Final = GroupResource("", "serviceaccounts")
SECRETS: Final = GroupResource("", "secrets")
CONFIG_MAPS: Final = GroupResource("", "configmaps")
TOKEN_TYPE: Final = "kubernetes.io/service-account-token"  # noqa: S105 - the name of a type
ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
ACCOUNT_UID: Final = "kubernetes.io/service-account.uid"


class DefaultAccounts(Controller[str]):
    """Creates the ServiceAccount ``default``, again if it is deleted. Keys are the names of namespaces."""

    account = "service-account-controller"

    def enqueue_all(self) -> None:
        """Enqueue all namespaces."""
        for record in self.client.records(NAMESPACES):
            self.queue.add(record.name)

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue new namespaces, and namespaces whose default account was deleted."""
        if resource == NAMESPACES:
            if change.type == "ADDED":
                self.queue.add(change.record.name)
        elif resource == ACCOUNTS and change.type == "DELETED" and change.record.name == "default":
            self.queue.add(change.record.namespace)

    async def reconcile(self, key: str) -> None:
        """Create the account, unless the namespace is being deleted."""
        namespace = self.client.record(NAMESPACES, "", key)
        if (
            namespace is None
            or namespace.deleting
            or self.client.record(ACCOUNTS, key, "default") is not None
        ):
            return
        await self.client.create(ACCOUNTS, {"metadata": {"name": "default", "namespace": key}})


class _Name(NamedTuple):
    namespace: str
    name: str


class TokenSecrets(Controller[_Name]):
    """Fills Secrets of type ``kubernetes.io/service-account-token``, and deletes Secrets whose account was deleted.

    ``ca`` is the certificate (PEM) that is stored in them next to the token.
    """

    account = "tokens-controller"

    def enqueue_all(self) -> None:
        """Enqueue all Secrets."""
        for record in self.client.records(SECRETS):
            self.queue.add(_Name(record.namespace, record.name))

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue token Secrets that changed, and the token Secrets in the namespace of an account that changed."""
        record = change.record
        if resource == SECRETS:
            if change.type != "DELETED" and TOKEN_TYPE.encode() in record.data:
                self.queue.add(_Name(record.namespace, record.name))
        elif resource == ACCOUNTS:
            for secret in self.client.records(SECRETS, record.namespace):
                if TOKEN_TYPE.encode() in secret.data:
                    self.queue.add(_Name(secret.namespace, secret.name))

    async def reconcile(self, key: _Name) -> None:
        """Issue the token of a Secret, or delete the Secret if its account does not exist."""
        record = self.client.record(SECRETS, key.namespace, key.name)
        if record is None or record.deleting or TOKEN_TYPE.encode() not in record.data:
            return
        secret = record.obj()
        annotations = secret["metadata"].get("annotations") or {}
        name = annotations.get(ACCOUNT_NAME)
        if secret.get("type") != TOKEN_TYPE or not name:
            return
        account = self.client.record(ACCOUNTS, key.namespace, name)
        if account is None or annotations.get(ACCOUNT_UID, account.uid) != account.uid:
            await self.client.delete(SECRETS, key.namespace, key.name, uid=record.uid)
            return
        token = self.core.tokens.legacy_token(key.namespace, name, account.uid, key.name)
        uid = account.uid
        await self.client.modify(
            SECRETS,
            key.namespace,
            key.name,
            lambda obj: self._fill(obj, uid, token),
            uid=record.uid,
        )

    def _fill(self, secret: Object, uid: str, token: str) -> bool:
        data = secret.setdefault("data", {}) or {}
        annotations = secret["metadata"]["annotations"]
        desired = {"namespace": secret["metadata"]["namespace"].encode()}
        if "token" not in data:
            desired["token"] = token.encode()
        if self.ca:
            desired["ca.crt"] = self.ca
        filled = {
            **data,
            **{name: base64.b64encode(value).decode() for name, value in desired.items()},
        }
        if filled == data and annotations.get(ACCOUNT_UID) == uid:
            return False
        secret["data"] = filled
        annotations[ACCOUNT_UID] = uid
        return True


class RootCertificates(Controller[str]):
    """Publishes the CA of the API server as ConfigMap ``kube-root-ca.crt`` in each namespace."""

    account = "root-ca-cert-publisher"
    config_map = "kube-root-ca.crt"

    def enqueue_all(self) -> None:
        """Enqueue all namespaces."""
        for record in self.client.records(NAMESPACES):
            self.queue.add(record.name)

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Enqueue new namespaces, and namespaces whose ConfigMap changed."""
        if resource == NAMESPACES:
            if change.type == "ADDED":
                self.queue.add(change.record.name)
        elif resource == CONFIG_MAPS and change.record.name == self.config_map:
            self.queue.add(change.record.namespace)

    async def reconcile(self, key: str) -> None:
        """Create the ConfigMap, or restore its data."""
        namespace = self.client.record(NAMESPACES, "", key)
        if namespace is None or namespace.deleting:
            return
        data = {"ca.crt": self.ca.decode()}
        if self.client.record(CONFIG_MAPS, key, self.config_map) is None:
            text = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints."
            metadata = {
                "name": self.config_map,
                "namespace": key,
                "annotations": {"kubernetes.io/description": text},
            }
            await self.client.create(CONFIG_MAPS, {"metadata": metadata, "data": data})
            return

        def change(obj: Object) -> bool:
            if obj.get("data") == data:
                return False
            obj["data"] = data
            return True

        await self.client.modify(CONFIG_MAPS, key, self.config_map, change)

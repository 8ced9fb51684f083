"""Service accounts: each namespace has a ``default`` one, and Secrets that ask for a token get it."""

from __future__ import annotations

import base64
from typing import Final, NamedTuple

from envtest.controllers.controller import Controller
from envtest.errors import GroupResource
from envtest.objects import Object
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
    """Makes the ServiceAccount ``default``, again if it is deleted. Keys are the names of namespaces."""

    account = "service-account-controller"

    def begin(self) -> None:
        """Looks at all namespaces."""
        for record in self.actor.records(NAMESPACES):
            self.queue.add(record.name)

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Follows namespaces as they come, and accounts as they go."""
        if resource == NAMESPACES:
            if change.type == "ADDED":
                self.queue.add(change.record.name)
        elif resource == ACCOUNTS and change.type == "DELETED" and change.record.name == "default":
            self.queue.add(change.record.namespace)

    async def work(self, key: str) -> None:
        """Makes the account, unless the namespace is going."""
        namespace = self.actor.record(NAMESPACES, "", key)
        if namespace is None or namespace.deleting or self.actor.record(ACCOUNTS, key, "default") is not None:
            return
        await self.actor.create(ACCOUNTS, {"metadata": {"name": "default", "namespace": key}})


class _Name(NamedTuple):
    namespace: str
    name: str


class TokenSecrets(Controller[_Name]):
    """Fills Secrets of type ``kubernetes.io/service-account-token``, and deletes those whose account is gone.

    ``authority`` is the certificate (PEM) that goes into them beside the token.
    """

    account = "tokens-controller"

    def begin(self) -> None:
        """Looks at all Secrets."""
        for record in self.actor.records(SECRETS):
            self.queue.add(_Name(record.namespace, record.name))

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Follows Secrets that are for tokens, and accounts."""
        record = change.record
        if resource == SECRETS:
            if change.type != "DELETED" and TOKEN_TYPE.encode() in record.data:
                self.queue.add(_Name(record.namespace, record.name))
        elif resource == ACCOUNTS:
            for secret in self.actor.records(SECRETS, record.namespace):
                if TOKEN_TYPE.encode() in secret.data:
                    self.queue.add(_Name(secret.namespace, secret.name))

    async def work(self, key: _Name) -> None:
        """Issues the token that a Secret asks for."""
        record = self.actor.record(SECRETS, key.namespace, key.name)
        if record is None or record.deleting or TOKEN_TYPE.encode() not in record.data:
            return
        secret = record.obj()
        annotations = secret["metadata"].get("annotations") or {}
        name = annotations.get(ACCOUNT_NAME)
        if secret.get("type") != TOKEN_TYPE or not name:
            return
        account = self.actor.record(ACCOUNTS, key.namespace, name)
        if account is None or annotations.get(ACCOUNT_UID, account.uid) != account.uid:
            await self.actor.delete(SECRETS, key.namespace, key.name, uid=record.uid)
            return
        token = self.core.tokens.legacy_token(key.namespace, name, account.uid, key.name)
        uid = account.uid
        await self.actor.modify(
            SECRETS, key.namespace, key.name, lambda obj: self._fill(obj, uid, token), uid=record.uid
        )

    def _fill(self, secret: Object, uid: str, token: str) -> bool:
        data = secret.setdefault("data", {}) or {}
        annotations = secret["metadata"]["annotations"]
        wanted = {"namespace": secret["metadata"]["namespace"].encode()}
        if "token" not in data:
            wanted["token"] = token.encode()
        if self.authority:
            wanted["ca.crt"] = self.authority
        filled = {**data, **{name: base64.b64encode(value).decode() for name, value in wanted.items()}}
        if filled == data and annotations.get(ACCOUNT_UID) == uid:
            return False
        secret["data"] = filled
        annotations[ACCOUNT_UID] = uid
        return True


class RootCertificates(Controller[str]):
    """Publishes the authority of the API server as ConfigMap ``kube-root-ca.crt`` in each namespace."""

    account = "root-ca-cert-publisher"
    config_map = "kube-root-ca.crt"

    def begin(self) -> None:
        """Looks at all namespaces."""
        for record in self.actor.records(NAMESPACES):
            self.queue.add(record.name)

    def observe(self, resource: GroupResource, change: Change) -> None:
        """Follows namespaces and the ConfigMap."""
        if resource == NAMESPACES:
            if change.type == "ADDED":
                self.queue.add(change.record.name)
        elif resource == CONFIG_MAPS and change.record.name == self.config_map:
            self.queue.add(change.record.namespace)

    async def work(self, key: str) -> None:
        """Makes the ConfigMap, or puts it right."""
        namespace = self.actor.record(NAMESPACES, "", key)
        if namespace is None or namespace.deleting:
            return
        data = {"ca.crt": self.authority.decode()}
        if self.actor.record(CONFIG_MAPS, key, self.config_map) is None:
            text = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints."
            metadata = {
                "name": self.config_map,
                "namespace": key,
                "annotations": {"kubernetes.io/description": text},
            }
            await self.actor.create(CONFIG_MAPS, {"metadata": metadata, "data": data})
            return

        def change(obj: Object) -> bool:
            if obj.get("data") == data:
                return False
            obj["data"] = data
            return True

        await self.actor.modify(CONFIG_MAPS, key, self.config_map, change)

"""Impersonation: the ``Impersonate-*`` headers and the permissions that they need (legacy, and constrained: KEP-5284).

Each way to impersonate is a mode. A constrained mode needs two permissions: ``impersonate-on:MODE:VERB`` on the
requested resource, and ``impersonate:MODE`` on the user. The legacy mode needs only ``impersonate``. The first mode
that allows the request is used; if none does, the error of the first mode is returned. The first mode is the one that
last allowed the requestor to impersonate, if it applies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from urllib.parse import unquote

from envtest.apimachinery.errors import GroupResource, StatusError, bad_request, forbidden
from envtest.apimachinery.field_errors import go_quote
from envtest.apimachinery.user import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    UNAUTHENTICATED,
    User,
    node_name,
    service_account,
    service_account_groups,
    with_groups,
)
from envtest.auth.attributes import Attributes, forbidden_message
from envtest.auth.rbac import Authorizer

__all__ = ["LastModes", "impersonate", "requested_user"]

_AUTHENTICATION_GROUP: Final = "authentication.k8s.io"
_EXTRA_PREFIX: Final = "impersonate-extra-"
_NODE_NAME_EXTRA: Final = "authentication.kubernetes.io/node-name"
_WILDCARD_THRESHOLD: Final = 4
_GroupAttributes = Callable[[str], Attributes]
_ExtraAttributes = Callable[[str, str], Attributes]
_EXTRA_KEY = re.compile(
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+$"
)


def requested_user(headers: Iterable[tuple[str, str]]) -> User | None:
    """Return the user to impersonate, or ``None`` if the headers do not request impersonation.

    Raises StatusError (400) when groups, uid or extra values come without a user name.
    """
    name = ""
    uid = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    for header, value in headers:
        key = header.lower()
        if not key.startswith("impersonate-"):
            continue
        if key == "impersonate-user":
            name = name or value
        elif key == "impersonate-uid":
            uid = uid or value
        elif key == "impersonate-group":
            groups.append(value)
        elif key.startswith(_EXTRA_PREFIX):
            extra.setdefault(unquote(key.removeprefix(_EXTRA_PREFIX)), []).append(value)
    if not name:
        if uid or groups or extra:
            raise bad_request(
                f"requested {_go_user(uid, groups, extra)} without impersonating a user name"
            )
        return None
    return User(name, uid, tuple(groups), {key: tuple(values) for key, values in extra.items()})


class LastModes:
    """The mode that last allowed each requestor to impersonate for a kind of request.

    This mode is tried first, so its error is returned. Holds at most ``limit`` entries and forgets the oldest.
    """

    def __init__(self, limit: int = 1024) -> None:
        self._limit = limit
        self._modes: dict[tuple[str, ...], str] = {}

    def order(self, attributes: Attributes, modes: list[str]) -> list[str]:
        """Return ``modes`` with the one that last allowed such a request in front."""
        last = self._modes.get(_request_key(attributes))
        return sorted(modes, key=lambda mode: mode != last)

    def record(self, attributes: Attributes, mode: str) -> None:
        """Record that ``mode`` allowed the request to impersonate."""
        if len(self._modes) >= self._limit:
            del self._modes[next(iter(self._modes))]
        self._modes[_request_key(attributes)] = mode


def _request_key(attributes: Attributes) -> tuple[str, ...]:
    user = attributes.user
    return (
        user.name,
        user.uid,
        attributes.verb,
        attributes.group,
        attributes.combined_resource,
        *user.groups,
    )


def impersonate(
    authorizer: Authorizer,
    attributes: Attributes,
    requested: User,
    last_modes: LastModes | None = None,
) -> User:
    """Return the impersonated user. Raises StatusError (403)."""
    last_modes = LastModes() if last_modes is None else last_modes
    first_error: StatusError | None = None
    for mode in last_modes.order(attributes, _modes(requested, attributes.user)):
        try:
            if mode:
                on_request = attributes.with_verb(f"impersonate-on:{mode}:{attributes.verb}")
                if mode == "associated-node":
                    on_request = _with_associated_node_keys(on_request)
                _check(authorizer, on_request)
            user = _check_mode(authorizer, attributes.user, requested, mode)
        except StatusError as error:
            first_error = first_error or error
        else:
            last_modes.record(attributes, mode)
            return user
    assert first_error is not None, "the legacy mode always applies"
    raise first_error


def _modes(requested: User, requestor: User) -> list[str]:
    node = node_name(requested.name)
    account = service_account(requested.name)
    name_only = not (requested.uid or requested.groups or requested.extra)
    modes = []
    if name_only and node is not None:
        if service_account(requestor.name) and requestor.extra.get(_NODE_NAME_EXTRA) == (node,):
            modes.append("associated-node")
        modes.append("arbitrary-node")
    if name_only and account is not None:
        modes.append("serviceaccount")
    if node is None and account is None:
        modes.append("user-info")
    return [*modes, ""]


def _check_mode(authorizer: Authorizer, requestor: User, requested: User, mode: str) -> User:
    verb = f"impersonate:{mode}" if mode else "impersonate"
    group = _AUTHENTICATION_GROUP if mode else ""
    user = User(requested.name, requested.uid, requested.groups, requested.extra)

    def attributes_for(
        resource: str, name: str, *, group: str = group, namespace: str = "", subresource: str = ""
    ) -> Attributes:
        return Attributes(
            user=requestor,
            verb=verb,
            group=group,
            version="v1",
            resource=resource,
            subresource=subresource,
            namespace=namespace,
            name=name,
            is_resource_request=True,
        )

    node = node_name(requested.name)
    account = service_account(requested.name)
    if mode and node is not None:
        target = attributes_for("nodes", node)
        if mode == "associated-node":
            target = _with_associated_node_keys(attributes_for("nodes", "*"))
        user = User(user.name, user.uid, ("system:nodes",), user.extra)
    elif account is not None:
        target = attributes_for("serviceaccounts", account[1], namespace=account[0])
        if not requested.groups:
            user = User(user.name, user.uid, service_account_groups(account[0]), user.extra)
    else:
        target = attributes_for("users", requested.name)
    _check(authorizer, target)
    if requested.uid:
        _check(authorizer, attributes_for("uids", requested.uid, group=_AUTHENTICATION_GROUP))
    _check_groups(authorizer, requested.groups, mode, lambda name: attributes_for("groups", name))
    _check_extra(
        authorizer,
        requested.extra,
        mode,
        lambda key, value: attributes_for(
            "userextras", value, group=_AUTHENTICATION_GROUP, subresource=key
        ),
    )
    if user.name == ANONYMOUS.name:
        return with_groups(user, UNAUTHENTICATED)
    return user if UNAUTHENTICATED in user.groups else with_groups(user, AUTHENTICATED)


def _check_groups(
    authorizer: Authorizer, groups: tuple[str, ...], mode: str, attributes_for: _GroupAttributes
) -> None:
    if mode and "" in groups:
        raise _forbidden(attributes_for(""), "impersonating the empty string group is not allowed")
    if mode and MASTERS in groups:
        raise _forbidden(
            attributes_for(MASTERS), "impersonating the system:masters group is not allowed"
        )
    if (
        mode
        and len(groups) >= _WILDCARD_THRESHOLD
        and authorizer.authorize(attributes_for("*")).allowed
    ):
        return
    for group in groups:
        _check(authorizer, attributes_for(group))


def _check_extra(
    authorizer: Authorizer,
    extra: Mapping[str, tuple[str, ...]],
    mode: str,
    attributes_for: _ExtraAttributes,
) -> None:
    if mode:
        for key, values in extra.items():
            error = _extra_error(key, values)
            if error:
                raise _forbidden(attributes_for("", ""), error)
        use_wildcard = (
            len(extra) >= _WILDCARD_THRESHOLD
            or sum(map(len, extra.values())) >= _WILDCARD_THRESHOLD
        )
        if use_wildcard and authorizer.authorize(attributes_for("*", "*")).allowed:
            return
    for key, values in extra.items():
        for value in values:
            _check(authorizer, attributes_for(key, value))


def _extra_error(key: str, values: tuple[str, ...]) -> str:
    if not key:
        return "impersonating the empty string key in extra is not allowed"
    if not _EXTRA_KEY.match(key):
        return (
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: "
            f'{go_quote(key)}: must be a domain-prefixed path (such as "acme.io/foo")'
        )
    if "" in values:
        return "impersonating the empty string value in extra is not allowed"
    return ""


def _with_associated_node_keys(attributes: Attributes) -> Attributes:
    user = attributes.user
    keys = {"authentication.kubernetes.io/associated-node-keys": tuple(sorted(user.extra))}
    return attributes.with_user(User(user.name, user.uid, user.groups, keys))


def _check(authorizer: Authorizer, attributes: Attributes) -> None:
    decision = authorizer.authorize(attributes)
    if not decision.allowed:
        raise _forbidden(attributes, decision.reason)


def _forbidden(attributes: Attributes, reason: str) -> StatusError:
    resource = GroupResource(attributes.group, attributes.resource)
    return forbidden(resource, attributes.name, forbidden_message(attributes, reason))


def _go_user(uid: str, groups: list[str], extra: Mapping[str, list[str]]) -> str:
    def go_strings(values: Iterable[str]) -> str:
        return "[]string{" + ", ".join(go_quote(value) for value in values) + "}"

    go_groups = go_strings(groups) if groups else "[]string(nil)"
    pairs = ", ".join(
        f"{go_quote(key)}:{go_strings(values)}" for key, values in sorted(extra.items())
    )
    go_extra = f"map[string][]string{{{pairs}}}" if extra else "map[string][]string(nil)"
    return (
        f'&user.DefaultInfo{{Name:"", UID:{go_quote(uid)}, Groups:{go_groups}, Extra:{go_extra}}}'
    )

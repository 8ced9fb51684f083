"""Acting as somebody else: ``Impersonate-*`` headers and who may send them (KEP-5284, and what was before it).

Each way to impersonate is a mode. The constrained ones ask for two rights, ``impersonate-on:MODE:VERB`` on what is
requested and ``impersonate:MODE`` on the user; the old one for ``impersonate`` alone. The first mode that allows it
wins; where none does, the refusal is that of the first mode which applies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from urllib.parse import unquote

from envtest.auth.attributes import Attributes, forbidden_message
from envtest.auth.rbac import Authorizer
from envtest.auth.user import (
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
from envtest.errors import GroupResource, StatusError, bad_request, forbidden
from envtest.field_errors import go_quote

__all__ = ["impersonate", "requested_user"]

_AUTHENTICATION_GROUP: Final = "authentication.k8s.io"
_EXTRA_PREFIX: Final = "impersonate-extra-"
_NODE_NAME_EXTRA: Final = "authentication.kubernetes.io/node-name"
_MANY: Final = 4
_AskGroup = Callable[[str], Attributes]
_AskExtra = Callable[[str, str], Attributes]
_EXTRA_KEY = re.compile(
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+$"
)


def requested_user(headers: Iterable[tuple[str, str]]) -> User | None:
    """The user that the headers ask to act as, ``None`` where they do not.

    Raises StatusError (400) when groups, uid or extra values come without a user name.
    """
    name = uid = ""
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
            raise bad_request(f"requested {_go_user(uid, groups, extra)} without impersonating a user name")
        return None
    return User(name, uid, tuple(groups), {key: tuple(values) for key, values in extra.items()})


def impersonate(authorizer: Authorizer, attributes: Attributes, wanted: User) -> User:
    """The user that the request of ``attributes.user`` goes on as. Raises StatusError (403)."""
    refusal: StatusError | None = None
    for mode in _modes(wanted, attributes.user):
        try:
            if mode:
                on = attributes.with_verb(f"impersonate-on:{mode}:{attributes.verb}")
                _check(authorizer, _for_every_node(on) if mode == "associated-node" else on)
            return _allowed(authorizer, attributes.user, wanted, mode)
        except StatusError as error:
            refusal = refusal or error
    assert refusal is not None, "the old mode always applies"
    raise refusal


def _modes(wanted: User, requestor: User) -> list[str]:
    node, account = node_name(wanted.name), service_account(wanted.name)
    name_only = not (wanted.uid or wanted.groups or wanted.extra)
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


def _allowed(authorizer: Authorizer, requestor: User, wanted: User, mode: str) -> User:
    verb = f"impersonate:{mode}" if mode else "impersonate"
    group = _AUTHENTICATION_GROUP if mode else ""
    user = User(wanted.name, wanted.uid, wanted.groups, wanted.extra)

    def ask(resource: str, name: str, *, group: str = group, namespace: str = "", subresource: str = "") -> Attributes:
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

    node, account = node_name(wanted.name), service_account(wanted.name)
    if mode and node is not None:
        question = ask("nodes", node)
        if mode == "associated-node":
            question = _for_every_node(ask("nodes", "*"))
        user = User(user.name, user.uid, ("system:nodes",), user.extra)
    elif account is not None:
        question = ask("serviceaccounts", account[1], namespace=account[0])
        if not wanted.groups:
            user = User(user.name, user.uid, service_account_groups(account[0]), user.extra)
    else:
        question = ask("users", wanted.name)
    _check(authorizer, question)
    if wanted.uid:
        _check(authorizer, ask("uids", wanted.uid, group=_AUTHENTICATION_GROUP))
    _check_groups(authorizer, wanted.groups, mode, lambda name: ask("groups", name))
    _check_extra(
        authorizer,
        wanted.extra,
        mode,
        lambda key, value: ask("userextras", value, group=_AUTHENTICATION_GROUP, subresource=key),
    )
    if user.name == ANONYMOUS.name:
        return with_groups(user, UNAUTHENTICATED)
    return user if UNAUTHENTICATED in user.groups else with_groups(user, AUTHENTICATED)


def _check_groups(authorizer: Authorizer, groups: tuple[str, ...], mode: str, ask: _AskGroup) -> None:
    if mode and "" in groups:
        raise _forbidden(ask(""), "impersonating the empty string group is not allowed")
    if mode and MASTERS in groups:
        raise _forbidden(ask(MASTERS), "impersonating the system:masters group is not allowed")
    if mode and len(groups) >= _MANY and authorizer.authorize(ask("*")).allowed:
        return
    for group in groups:
        _check(authorizer, ask(group))


def _check_extra(authorizer: Authorizer, extra: Mapping[str, tuple[str, ...]], mode: str, ask: _AskExtra) -> None:
    if mode:
        for key, values in extra.items():
            wrong = _wrong_extra(key, values)
            if wrong:
                raise _forbidden(ask("", ""), wrong)
        many = len(extra) >= _MANY or sum(map(len, extra.values())) >= _MANY
        if many and authorizer.authorize(ask("*", "*")).allowed:
            return
    for key, values in extra.items():
        for value in values:
            _check(authorizer, ask(key, value))


def _wrong_extra(key: str, values: tuple[str, ...]) -> str:
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


def _for_every_node(attributes: Attributes) -> Attributes:
    user = attributes.user
    keys = {"authentication.kubernetes.io/associated-node-keys": tuple(sorted(user.extra))}
    return attributes.by(User(user.name, user.uid, user.groups, keys))


def _check(authorizer: Authorizer, attributes: Attributes) -> None:
    decision = authorizer.authorize(attributes)
    if not decision.allowed:
        raise _forbidden(attributes, decision.reason)


def _forbidden(attributes: Attributes, reason: str) -> StatusError:
    resource = GroupResource(attributes.group, attributes.resource)
    return forbidden(resource, attributes.name, forbidden_message(attributes, reason))


def _go_user(uid: str, groups: list[str], extra: Mapping[str, list[str]]) -> str:
    def texts(values: Iterable[str]) -> str:
        return "[]string{" + ", ".join(go_quote(value) for value in values) + "}"

    listed = texts(groups) if groups else "[]string(nil)"
    pairs = ", ".join(f"{go_quote(key)}:{texts(values)}" for key, values in sorted(extra.items()))
    mapped = f"map[string][]string{{{pairs}}}" if extra else "map[string][]string(nil)"
    return f'&user.DefaultInfo{{Name:"", UID:{go_quote(uid)}, Groups:{listed}, Extra:{mapped}}}'

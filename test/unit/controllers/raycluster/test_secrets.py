"""When the content of a RayCluster's Secret must be read, decided from its metadata."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from cfo.api.raycluster.cluster import cluster_labels
from cfo.api.raycluster.names import FIELD_MANAGER
from cfo.controllers.raycluster.secrets import NEVER, ClusterSecrets, secret_informer
from cfo.runtime import SECRET, Object, key_of
from cfo.runtime.objects import new_object
from test.support.decisions import list_objects, offline_manager, owned, stored_cluster

CLUSTER = stored_cluster()
KEY = key_of(CLUSTER)
DESIRED = new_object(SECRET, "secret", "ns", labels=cluster_labels(CLUSTER))
DUE = datetime(2027, 1, 1, tzinfo=UTC)


def owns(*keys: str, manager: str = FIELD_MANAGER) -> Object:
    """Return the managedFields entry of a field manager that owns these keys of the content."""
    return {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {f"f:{key}": {} for key in keys}},
    }


OWN = owns("ca.crt", "ca.key")


def stored(*managers: Object, version: str = "7", **metadata: Any) -> Object:
    """Return the Secret as stored, with these managedFields."""
    return owned(
        DESIRED, CLUSTER, resourceVersion=version, managedFields=list(managers), **metadata
    )


def secrets_with(
    *objects: Object, valid_until: Callable[[Object], datetime | None] = lambda _: DUE
) -> ClusterSecrets:
    """Return what is known if these Secrets are listed, after a restart."""
    informer = secret_informer(offline_manager())
    list_objects(informer, objects)
    return ClusterSecrets(informer.reader, ("ca.crt", "ca.key"), valid_until)


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([stored(OWN)], DUE),
        ([], None),
        ([stored(OWN, deletionTimestamp="2026-01-01T00:00:00Z")], None),
        ([stored(OWN, ownerReferences=[])], None),
        ([stored(owns("ca.crt"), owns("ca.key", manager="kubectl"))], None),
        ([stored(owns("ca.crt", "ca.key", manager="kubectl"))], None),
        ([stored()], None),
    ],
    ids=[
        "the operator owns the content",
        "it does not exist",
        "it is being deleted",
        "its metadata has to be changed",
        "another client changed a part of the content",
        "another client wrote the content",
        "no one is known to own the content",
    ],
)
def test_content_is_not_read_after_a_restart_only_if_the_operator_owns_it(
    listed: list[Object], expected: datetime | None
) -> None:
    secrets = secrets_with(*listed)
    assert secrets.known_validity(CLUSTER, DESIRED) == expected
    assert secrets.was_verified(KEY) is (expected is not None)


def test_content_is_read_if_its_metadata_does_not_show_its_validity() -> None:
    secrets = secrets_with(stored(OWN), valid_until=lambda _: None)
    assert secrets.known_validity(CLUSTER, DESIRED) is None
    assert not secrets.was_verified(KEY)


def test_content_without_end_is_valid_forever() -> None:
    informer = secret_informer(offline_manager())
    list_objects(informer, [stored(OWN)])
    assert ClusterSecrets(informer.reader, ("ca.crt",)).known_validity(CLUSTER, DESIRED) == NEVER


def test_verified_content_is_known_until_its_version_changes() -> None:
    secrets = secrets_with(stored())
    secrets.remember(KEY, stored(), DUE)
    assert secrets.known_validity(CLUSTER, DESIRED) == DUE
    secrets.remember(KEY, stored(version="6"), DUE)
    assert secrets.known_validity(CLUSTER, DESIRED) is None


def test_secret_with_the_name_of_a_verified_one_is_read() -> None:
    secrets = secrets_with(stored(uid="another"))
    secrets.remember(KEY, stored(), DUE)
    assert secrets.known_validity(CLUSTER, DESIRED) is None


def test_secret_of_a_deleted_cluster_is_forgotten() -> None:
    secrets = secrets_with(stored())
    secrets.remember(KEY, stored(), DUE)
    secrets.forget(KEY)
    assert not secrets.was_verified(KEY)
    secrets.forget(KEY)

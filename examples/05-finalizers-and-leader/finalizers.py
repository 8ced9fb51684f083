"""Create a directory for each Bucket and remove it with a finalizer; one of several replicas is the leader."""

import argparse
import contextlib
import shutil
import sys
from pathlib import Path

import anyio
import yaml
from prometheus_client import Counter

from cfo.runtime import (
    EVENT_RULES,
    GVK,
    READ,
    Builder,
    ClientConfig,
    ConfigError,
    Finalizer,
    LeaderElectionOptions,
    Manager,
    ManagerOptions,
    Object,
    Request,
    Result,
    Rule,
    leader_election_rules,
    load_config,
    logs,
    name_of,
    namespace_of,
    policy_rules,
)
from cfo.runtime.controller import RunnableFailed

BUCKET = GVK("example.com", "v1", "Bucket")
FINALIZER = "example.com/directory"
NAME = "bucket-operator"


class BucketReconciler:
    """Creates and removes directories, an example of resources that the cluster's garbage collector cannot delete."""

    rules = (Rule("example.com", "buckets", (*READ, "patch")),)

    def __init__(self, manager: Manager, root: Path) -> None:
        self.client = manager.client
        self.finalizer = Finalizer(manager.client, FINALIZER)
        self.root = root
        self.removed = Counter(
            "bucket_directories_removed", "Removed directories", registry=manager.metrics.registry
        )

    async def reconcile(self, request: Request) -> Result:
        """Add the finalizer before the directory is created, and remove it after the directory was removed."""
        bucket = await self.client.get(BUCKET, request)
        if bucket is None:
            return Result()
        return await self.finalizer.reconcile(
            bucket, apply=self.create_directory, cleanup=self.remove_directory
        )

    async def create_directory(self, bucket: Object) -> None:
        """Create the directory of a bucket that has the finalizer."""
        self.directory_of(bucket).mkdir(parents=True, exist_ok=True)

    async def remove_directory(self, bucket: Object) -> None:
        """Remove the directory of a bucket that is being deleted; this may run twice."""
        with contextlib.suppress(FileNotFoundError):
            await anyio.to_thread.run_sync(shutil.rmtree, self.directory_of(bucket))
        self.removed.inc()

    def directory_of(self, bucket: Object) -> Path:
        """Return the directory of a bucket."""
        return self.root / namespace_of(bucket) / name_of(bucket)


def new_manager(
    config: ClientConfig, root: Path, metrics: str = ":8080", health: str = ":8081"
) -> Manager:
    """Return a manager with the controller for Buckets; ``metrics`` and ``health`` are HOST:PORT."""
    options = ManagerOptions(
        field_manager=NAME,
        leader_election=LeaderElectionOptions(name=NAME, namespace=config.namespace),
        metrics_bind_address=metrics,
        health_bind_address=health,
    )
    manager = Manager(config, options)

    def check_root() -> None:
        if not root.is_dir():
            raise RuntimeError(f"{root} is not a directory")

    manager.health.add_ready_check("root", check_root)
    Builder(manager).for_(BUCKET).complete(BucketReconciler(manager, root))
    return manager


def roles(namespace: str) -> list[Object]:
    """Return the ClusterRole and the Role with the minimum permissions of the program."""
    cluster, lease = [*BucketReconciler.rules, *EVENT_RULES], leader_election_rules(NAME, namespace)
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": NAME, "namespace": namespace},
    }
    return [
        {**role, "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": policy_rules(cluster)},
        {**role, "kind": "Role", "rules": policy_rules(lease)},
    ]


async def main() -> None:
    """Run until SIGTERM or SIGINT: running reconciles finish first, then the Lease is released."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--root", type=Path, default=Path("buckets"), help="where the directories are created"
    )
    parser.add_argument("--metrics", default=":8080", help="HOST:PORT of /metrics")
    parser.add_argument("--health", default=":8081", help="HOST:PORT of /healthz and /readyz")
    parser.add_argument("--roles", action="store_true", help="print the RBAC roles and exit")
    args = parser.parse_args()
    logs.configure()
    config = await load_config()
    if args.roles:
        yaml.safe_dump_all(roles(config.namespace), sys.stdout, sort_keys=False)
        return
    args.root.mkdir(exist_ok=True)
    await new_manager(config, args.root, args.metrics, args.health).run(handle_signals=True)


if __name__ == "__main__":
    try:
        anyio.run(main)
    except (ConfigError, RunnableFailed) as error:
        sys.exit(str(error))

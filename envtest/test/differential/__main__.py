"""Compares envtest with kube-apiserver: ``python -m test.differential --seed 1 --exchanges 2000``, in ``envtest``.

Sends the same random requests to the embedded control plane and to the programs in ``$KUBEBUILDER_ASSETS``, and prints
each answer that differs, with the fewest requests that show it. Exits with 1 if more than 0.5 % differ.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import islice
from random import Random

from envtest import ControlPlane
from test.differential.comparison import Difference, Result, compare, minimized
from test.differential.custom_kinds import custom_sample
from test.differential.exchanges import Server
from test.differential.samples import builtin_samples
from test.differential.sequences import Sequence, SequenceGenerator

MIN_SHARE = 99.5
"""The least percentage of equal exchanges."""
BUILTIN_LENGTH = 8
CUSTOM_LENGTH = 20
"""Steps of a sequence; a CRD takes longer to create than an object."""
CUSTOM_AT_ONCE = 8
"""How many sequences of custom kinds are played at once: each has its own kind, and waits for it most of the time."""


def sequences(seed: int, kinds: str, only: str) -> Iterator[Sequence]:
    """Yield sequences without end: of each built-in kind in turn, or of a new CRD each."""
    number = 0
    samples = [sample for sample in builtin_samples() if only in sample.plural]
    while True:
        number += 1
        namespace = f"d{seed}-{kinds[0]}{number}"
        rng = Random(f"{seed} {kinds} {number}")
        if kinds == "custom":
            crd, sample = custom_sample(rng, namespace)
            yield SequenceGenerator(rng, sample, namespace).sequence(CUSTOM_LENGTH, [crd])
        else:
            sample = samples[number % len(samples)]
            yield SequenceGenerator(rng, sample, namespace).sequence(BUILTIN_LENGTH, [])


async def run(options: argparse.Namespace) -> Result:
    """Compare the servers, print what differs, and return the result."""
    result = Result(found=[])
    async with AsyncExitStack() as stack:
        planes = (ControlPlane.embedded(controllers=()), ControlPlane.real(controllers=()))
        ours, real = [
            await stack.enter_async_context(Server(await stack.enter_async_context(plane)))
            for plane in planes
        ]
        generated = sequences(options.seed, options.kinds, options.only)
        at_once = 1 if options.kinds == "builtin" else CUSTOM_AT_ONCE
        while result.exchanges < options.exchanges:
            batch = list(islice(generated, at_once))
            answers = await asyncio.gather(*(compare(ours, real, sequence) for sequence in batch))
            for sequence, found in zip(batch, answers, strict=True):
                result.exchanges += len(sequence.steps)
                result.found += found
                await _report(ours, real, sequence, found, minimize=options.minimize)
    return result


async def _report(
    ours: Server, real: Server, sequence: Sequence, found: list[Difference], *, minimize: bool
) -> None:
    """Print the differences of a sequence, with the fewest steps that show the first one if ``minimize``."""
    for difference in found:
        print(f"\n{sequence.namespace} step {difference.index}: {difference.step}")
        print("\n".join(f"    {line}" for line in difference.lines), flush=True)
    if found and minimize:
        print("  fewest steps:")
        for step in await minimized(ours, real, sequence, found[0]):
            print(f"    {step}", flush=True)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m test.differential", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--exchanges", type=int, default=2000)
    parser.add_argument("--kinds", choices=("builtin", "custom"), default="builtin")
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="only built-in resources whose names contain this",
    )
    parser.add_argument(
        "--minimize", action="store_true", help="print the fewest requests that show a difference"
    )
    options = parser.parse_args()
    result = asyncio.run(run(options))
    print()
    for kind, count in result.kinds():
        print(f"{count:5} {kind}")
    print(
        f"seed {options.seed}, {options.kinds}: {result.share:.2f} % of {result.exchanges} exchanges are equal"
    )
    sys.exit(0 if result.share >= MIN_SHARE else 1)


if __name__ == "__main__":
    main()

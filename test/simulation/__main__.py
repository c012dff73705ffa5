"""``python -m test.simulation``: run seeds, or one of them again with everything that happened.

Runs itself again with a fixed ``PYTHONHASHSEED``: the order of sets of texts is chance, too.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile

from test.simulation.runner import KINDS, Outcome, end_worlds_that_hang, memory_directory, run_seed, run_seeds

HASH_SEED = "0"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m test.simulation", description=__doc__)
    parser.add_argument("--kind", choices=sorted(KINDS), action="append", help="default: all, one after another")
    parser.add_argument("--seed", type=int, help="one world")
    parser.add_argument("--seeds", default="0:200", metavar="A:B", help="worlds A to B-1 of each kind")
    parser.add_argument("--failures", type=int, default=1, help="stop a kind after so many failures")
    parser.add_argument("--digest", action="store_true", help="with --seed: print a digest of all that happened")
    parser.add_argument("-v", "--verbose", action="store_true", help="with --seed: print all that happened")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "test.simulation", *sys.argv[1:]])
    end_worlds_that_hang()
    kinds = options.kind or list(KINDS)
    if options.seed is not None:
        return _one(kinds, options)
    first, _, last = options.seeds.partition(":")
    is_good = True
    for kind in kinds:
        count, failed, seconds = run_seeds(kind, range(int(first), int(last)), stop_after=options.failures)
        for outcome in failed:
            _tell(outcome)
        each_ms = seconds / max(count, 1) * 1000
        print(f"{kind}: {count} seeds, {len(failed)} failed, {seconds:.1f} s, {each_ms:.1f} ms each", flush=True)
        is_good = is_good and not failed
    return 0 if is_good else 1


def _one(kinds: list[str], options: argparse.Namespace) -> int:
    logging.getLogger("kafka").propagate = False
    is_good = True
    for kind in kinds:
        with tempfile.TemporaryDirectory(dir=memory_directory()) as directory:
            outcome = run_seed(kind, options.seed, directory, keeps_all=options.verbose or options.digest)
        if options.digest:
            print(kind, outcome.seed, outcome.digest, outcome.events)
        if options.verbose and not outcome.violations:
            print("\n".join(outcome.trace))
        if outcome.violations:
            is_good = False
            _tell(outcome)
        elif not options.digest:
            print(f"{kind} {outcome.seed}: good, {outcome.events} events, {outcome.simulated_s:.1f} s simulated")
    return 0 if is_good else 1


def _tell(outcome: Outcome) -> None:
    print("\n".join(outcome.trace))
    for violation in outcome.violations:
        print(f"{outcome.kind} {outcome.seed}: {violation}")
    print(f"replay: {outcome.replay}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""Where batches of prompts are rewritten: in this process, or on the workers of a Ray cluster.

An engine takes batches and gives their answers in the same order, so that what is written does not
depend on it. It takes no more than it works on: memory does not grow with the input.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from t2x.errors import MissingDependencyError, T2XError

if TYPE_CHECKING:
    from t2x.types import Rewrite, Rewriter

log = logging.getLogger(__name__)

Engine: TypeAlias = Literal["local", "vllm", "ray"]
Answer: TypeAlias = "list[Rewrite] | str"  # rewrites of a prompt, or the reason why it has none
BROKEN = 8  # so many prompts that fail together, with none that passes: it is not the prompts
_AHEAD = 2  # batches that a worker has in hand: one that it works on and the next

__all__ = ["BROKEN", "Answer", "Engine", "answer_all", "answer_on_ray"]


def answer_all(
    guarded: Rewriter, prompts: Sequence[str], *, num: int = 1, seed: int = 0
) -> list[Answer]:
    """Give the rewrites of each prompt, or the reason why there are none.

    If the rewriter fails on a batch its prompts are tried one by one, so that one that breaks it
    does not take the others along. Raises what it raised if that is ``BROKEN`` prompts or more and
    none passes, and at once what no prompt can get past, such as a key that is refused.
    """
    from t2x.rewriters.chat_client import EndpointError

    try:
        return [*guarded.rewrite(prompts, num_generations=num, seed=seed)]
    except EndpointError:
        raise
    except Exception as error:
        log.info("a batch failed, its prompts are tried alone", exc_info=True)
        failure = error
    alone = [_alone(guarded, prompt, num, seed) for prompt in prompts]
    if len(prompts) >= BROKEN and all(isinstance(answer, str) for answer in alone):
        raise failure
    return alone


def _alone(guarded: Rewriter, prompt: str, num: int, seed: int) -> Answer:
    try:
        return guarded.rewrite([prompt], num_generations=num, seed=seed)[0]
    except Exception as error:
        reason = shorten(str(error), 300, placeholder=" ...")
        return f"the rewriter failed: {type(error).__name__}: {reason}"


class _Worker:
    """Holds the rewriter of one Ray worker; made in that worker's process."""

    def __init__(self, rewriter: str, target: str | None, threads: int) -> None:
        self._settings = rewriter, target, threads
        self._guarded: Rewriter | None = None

    def answer(self, prompts: list[str], num: int, seed: int) -> list[Answer]:
        if self._guarded is None:  # not when it is made: Ray hides what is raised there
            self._guarded = self._load(*self._settings)
        return answer_all(self._guarded, prompts, num=num, seed=seed)

    def _load(self, rewriter: str, target: str | None, threads: int) -> Rewriter:
        import torch

        from t2x.rewriters.loading import load_guarded

        torch.set_num_threads(threads)
        return load_guarded(rewriter, generator=target)


def answer_on_ray(
    batches: Iterable[Sequence[str]],
    *,
    rewriter: str,
    target: str | None = None,
    num: int = 1,
    seed: int = 0,
    workers: int | None = None,
    threads: int = 1,
) -> Iterator[list[Answer]]:
    """Answer batches on a Ray cluster: the one that the process is connected to or that
    ``RAY_ADDRESS`` names, else one on this machine.

    Args:
        batches: taken as workers become free.
        rewriter: a name that ``load_rewriter`` knows on every worker.
        target: see ``load_guarded``.
        num: rewrites per prompt.
        seed: same prompt, seed and model: same text.
        workers: None is one per GPU of the cluster, or per ``threads`` CPUs if it has none.
        threads: CPU threads of each worker.

    Raises what the rewriter raises, and T2XError if a worker's process ends.
    """
    with _ray() as ray:
        pool = _workers(ray, workers, threads, (rewriter, target, threads))
        try:
            yield from _in_order(ray, pool, batches, num, seed)
        finally:
            for worker in pool:
                ray.kill(worker)


@contextmanager
def _ray() -> Iterator[Any]:
    """Connect to a cluster, or start one and stop it again, unless the process is connected."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "--engine ray needs the package ray: pip install 't2x[ray]'"
        ) from error
    if ray.is_initialized():
        yield ray
        return
    ray.init(log_to_driver=False, logging_level=logging.WARNING, configure_logging=False)
    try:
        yield ray
    finally:
        ray.shutdown()


def _workers(ray: Any, workers: int | None, threads: int, settings: tuple[Any, ...]) -> list[Any]:
    resources = ray.cluster_resources()
    gpus, cpus = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
    number = workers or gpus or max(1, cpus // threads)
    per_worker = min(1.0, gpus / number) if gpus else 0
    if number * threads > cpus:
        raise T2XError(
            f"{number} workers with {threads} threads need {number * threads} CPUs and the cluster "
            f"has {cpus}; give fewer --workers"
        )
    # Sums differ between numbers of threads: every worker has the same.
    variables = {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    if path := os.environ.get("PYTHONPATH"):
        variables["PYTHONPATH"] = path
    remote = ray.remote(_Worker).options(
        num_cpus=threads, num_gpus=per_worker, runtime_env={"env_vars": variables}
    )
    return [remote.remote(*settings) for _ in range(number)]


def _in_order(
    ray: Any, pool: list[Any], batches: Iterable[Sequence[str]], num: int, seed: int
) -> Iterator[list[Answer]]:
    waiting: deque[Any] = deque()
    source = iter(batches)
    turn = 0
    while True:
        while len(waiting) < _AHEAD * len(pool):
            batch = next(source, None)
            if batch is None:
                break
            worker = pool[turn % len(pool)]
            waiting.append(worker.answer.remote(list(batch), num, seed) if batch else [])
            turn += bool(batch)
        if not waiting:
            return
        first = waiting.popleft()
        yield first if isinstance(first, list) else _result(ray, first)


def _result(ray: Any, reference: Any) -> list[Answer]:
    try:
        answers: list[Answer] = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayActorError as error:
        said = shorten(str(error), 300, placeholder=" ...")
        raise T2XError(
            f"a worker ended: {said}; run the same command again to go on from here"
        ) from error
    return answers

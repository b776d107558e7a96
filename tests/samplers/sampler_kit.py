"""Builds samplers and agents for the contract tests, and compares what they give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from rlpyt.agents import CategoricalPgAgent, RecurrentCategoricalPgAgent
from rlpyt.samplers import (
    AlternatingSampler,
    BaseSampler,
    CpuSampler,
    GpuSampler,
    NoOverlapAlternatingSampler,
    SerialSampler,
)
from rlpyt.types import Run, TrajInfo
from rlpyt.utils.arrays import buffer_func, buffer_leaves, torchify_buffer
from tests.pairs import others_nightly
from tests.toy_envs import CountingEnv, CountingModel

SAMPLERS = ("serial", "cpu1", "cpu2", "cpu3", "gpu2", "gpu3", "alternating2", "alternating3", "no_overlap2", "halves")
"""What `running` makes samplers of: a kind, and the number of workers where it has any."""
TWO_OF_EACH = ("serial", "halves", "cpu2", "gpu2", "alternating2", "no_overlap2")


ONE_OF_EACH = ("serial", "cpu2", "gpu2", "alternating2")
"""Those that act otherwise: here, in the workers, for all workers, and for half of them at a time."""
EACH = others_nightly(TWO_OF_EACH, ONE_OF_EACH)
"""For `parametrize`: all, of which the suite has one of each."""


def with_either(kinds: Sequence[str], a: Any = False, b: Any = True) -> list[tuple[str, Any]]:
    """Return pairs for `parametrize`: the first kind with both values, the others with each in turn.

    One collector serves all samplers: what both values do to it is seen once, and that every sampler hands both on is
    seen as each class of sampler stands here more than once.
    """
    return [(kinds[0], a), (kinds[0], b), *((kind, (a, b)[i % 2]) for i, kind in enumerate(kinds[1:]))]


CLASSES: dict[str, Any] = {
    "serial": SerialSampler,
    "halves": SerialSampler,
    "cpu": CpuSampler,
    "gpu": GpuSampler,
    "alternating": AlternatingSampler,
    "no_overlap": NoOverlapAlternatingSampler,
}


def make(kind: str, EnvCls: Any, batch_T: int, batch_B: int, **options: Any) -> BaseSampler:
    """Return a sampler; with one environment, one that alternates becomes one that does not."""
    name = kind.rstrip("0123456789")
    if batch_B == 1:
        name = {"halves": "serial", "alternating": "gpu", "no_overlap": "gpu"}.get(name, name)
    if CLASSES[name] is SerialSampler:
        for key in ("worker_timeout", "start_method", "restart_workers", "restart_seconds"):
            options.pop(key, None)
        return SerialSampler(EnvCls, batch_T=batch_T, batch_B=batch_B, n_parts=1 + (name == "halves"), **options)
    n_workers = min(int(kind[len(kind.rstrip("0123456789")) :]), batch_B)
    return CLASSES[name](EnvCls, batch_T=batch_T, batch_B=batch_B, n_workers=n_workers, **options)


@contextmanager
def running(
    kind: str, agent: Any, EnvCls: Any = CountingEnv, T: int = 5, B: int = 3, seed: int = 7, **kwargs: Any
) -> Iterator[BaseSampler]:
    """Yield an initialised sampler of one of `SAMPLERS`, with its workers in this process unless told otherwise.

    These are those of processes to the bit: `test_worker_kinds`.
    """
    where = {} if "worker_kind" in kwargs else {"start_method": "here"}
    options: dict[str, Any] = {"env_kwargs": {}, "max_decorrelation_steps": 0, **where, **kwargs}
    asked = ("bootstrap_value", "bootstrap_inputs")
    of_run = (*asked, "traj_info_kwargs", "replicas", "n_batches", "share_memory", "affinity", "saves_state")
    initialize = {k: options.pop(k) for k in of_run if k in options}
    sampler = make(kind, EnvCls, T, B, **options)
    try:
        sampler.initialize(agent, Run(batch_spec=sampler.batch_spec, seed=seed, **initialize))
        yield sampler
    finally:
        sampler.shutdown()


def start_and_stop(kind: str, agent: Any, EnvCls: Any = CountingEnv, **options: Any) -> None:
    """Start a sampler and stop it, of which the start may be refused."""
    with running(kind, agent, EnvCls, **options):
        pass


def counting_agent(recurrent: bool = False) -> Any:
    """Return an agent whose actions and values `row_reference` can tell."""
    AgentCls = RecurrentCategoricalPgAgent if recurrent else CategoricalPgAgent
    return AgentCls(ModelCls=CountingModel, model_kwargs={"recurrent": recurrent})


def random_agent(recurrent: bool = False) -> Any:
    """Return an agent with the default model, and weights that are always the same."""
    torch.manual_seed(0)
    convolution = {"channels": [2], "kernel_sizes": [2], "strides": [1], "paddings": [0]}
    sizes = {"hidden_sizes": 8, "fc_sizes": 8, **convolution}
    if recurrent:
        return RecurrentCategoricalPgAgent(model_kwargs={"rnn_size": 8, **sizes})
    return CategoricalPgAgent(model_kwargs=sizes)


def collect(sampler: Any, n_batches: int, first: int = 0) -> list[Any]:
    """Return copies of some batches, and their trajectories in the order in which they ended."""
    batches = []
    for itr in range(first, first + n_batches):
        samples, traj_infos = sampler.obtain_samples(itr)
        batches.append((buffer_func(samples, torch.clone), [info.statistics() for info in traj_infos]))
    return batches


def batches_of(n_batches: int, *args: Any, **options: Any) -> list[Any]:
    """Return the first batches of one of the samplers of `running`, which is given all but the number."""
    with running(*args, **options) as sampler:
        return collect(sampler, n_batches)


class Watched:
    """Sampler whose other places are compared, after every batch, with copies made when they were filled."""

    def __init__(self, sampler: Any) -> None:
        self.sampler, self.batch_spec = sampler, sampler.batch_spec
        self.places = [torchify_buffer(samples) for samples in sampler.batches]
        self.copies = [buffer_func(samples, torch.clone) for samples in self.places]

    def obtain_samples(self, itr: int) -> Any:
        """Return the batch, once it is checked that it was written to its own place."""
        result = self.sampler.obtain_samples(itr)
        self.check(itr)
        return result

    def check(self, itr: int) -> None:
        """Compare all places but that of an iteration."""
        at = itr % len(self.places)
        for i, (held, copy) in enumerate(zip(self.places, self.copies, strict=True)):
            assert i == at or all(map(torch.equal, buffer_leaves(held), buffer_leaves(copy)))
        self.copies[at] = buffer_func(self.places[at], torch.clone)


def in_order(traj_infos: list[TrajInfo]) -> list[list[tuple[str, Any]]]:
    """Return statistics of trajectories in an order that does not depend on when they ended."""
    return sorted(sorted(info.statistics().items()) for info in traj_infos)


def assert_equal_batches(a: list[Any], b: list[Any], rtol: float = 0.0) -> None:
    """Compare batches field by field; integers and flags exactly, floats up to `rtol`."""
    assert len(a) == len(b)
    for (samples_a, infos_a), (samples_b, infos_b) in zip(a, b, strict=True):
        assert infos_a == infos_b
        for x, y in zip(buffer_leaves(samples_a), buffer_leaves(samples_b), strict=True):
            if x.dtype != y.dtype or not torch.equal(x, y):  # which is a hundred times faster
                torch.testing.assert_close(x, y, rtol=rtol if x.is_floating_point() else 0, atol=rtol)

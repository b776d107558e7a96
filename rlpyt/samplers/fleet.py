"""Fleets: the environments of one role in one process, built, checked and closed together; and a worker with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, ClassVar, NamedTuple

import psutil
import torch

from rlpyt.envs import (
    EnvAdapter,
    EnvError,
    EnvExamples,
    VectorEnvAdapter,
    info_recorder,
    make_env,
    make_vector_env,
    makes_vector_env,
)
from rlpyt.envs.check import examine_env, examine_vector_env
from rlpyt.envs.state_check import why_not_restored
from rlpyt.envs.state_data import GENERATORS
from rlpyt.logging import current_logger
from rlpyt.namedarraytuple import NamedArrayTuple
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.fleet_spec import FleetRole, FleetSpec, Specs
from rlpyt.samplers.parts import Environments, ListPart, LocalPart, NativePart
from rlpyt.samplers.states import AsBuilt, Loaded, joined, piece
from rlpyt.spaces import MASK, EnvSpaces, same_rows, without_mask
from rlpyt.types import StateDict
from rlpyt.utils.calls import CallServer
from rlpyt.utils.progress import Progress
from rlpyt.utils.seeds import Role, global_streams, numpy_generator, set_global_streams, set_seed, stream_seed
from rlpyt.utils.stops import is_end_of_run


class Built(NamedTuple):
    """Environments with the same spaces, for messages."""

    name: str
    noun: str
    ranks: list[int]
    spaces: EnvSpaces

    def check_spaces(self, expected: EnvSpaces) -> None:
        """Check that spaces have the expected rows: numpy would broadcast a small one silently."""
        # Whether the mask of legal actions in info becomes a part of the rows is not known before the first reset.
        own, other = without_mask(self.spaces).observation, without_mask(expected).observation
        if not (same_rows(own, other) and self.spaces.action == expected.action):
            raise EnvError(
                f"{self.name} ({self.noun} of rank {', '.join(map(str, self.ranks))}): its spaces are "
                f"{tuple(self.spaces)}; expected those of the run's first environment, {tuple(expected)}. One agent "
                "acts in all of them: pad or scale them alike."
            )


class Check(NamedTuple):
    """Result of the check at the start, one for all processes of a run: their rows are made from it."""

    examples: EnvExamples
    can_reset_some: bool = True
    """Whether a vector environment can reset a part of itself."""
    why_lost: str | None = None
    """Why environments cannot be restored although their state can be read, as a trial has found."""
    why_not_set_back: str | None = None
    """Why evaluation environments cannot be set back to how they were built."""

    def accept(self, built: list[Built]) -> None:
        """Check that all environments have the spaces of the one that was checked."""
        for one in built:
            one.check_spaces(self.examples.spaces)


def check_one(spec: FleetSpec) -> Check:
    """Build and check an environment, and close it again.

    An environment may remember what it has seen: random numbers drawn, episodes completed. So one that was checked is
    not used. It is closed before others are built, which may need its licence, port or memory.
    """
    seed, env_seed = stream_seed(spec.seed, Role.ENV_CHECK), stream_seed(spec.seed, Role.ENV_CHECK, 1)
    env_kwargs = spec.env_kwargs or {}
    with _torch_as_it_was(), ExitStack() as stack:
        if makes_vector_env(spec.EnvCls):
            vector_env = make_vector_env(spec.EnvCls, env_kwargs, spec.env_ranks, env_seed=env_seed)
            stack.callback(close_env, vector_env)
            examples = examine_vector_env(vector_env, seed)
            return Check(examples, vector_env.can_reset_some, why_not_set_back=vector_env.why_no_state())
        env = make_env(spec.EnvCls, env_kwargs, spec.env_ranks[0], env_seed=env_seed)
        stack.callback(close_env, env)
        check = _checked(spec, env, seed, env_seed)
        _advise_on_alike(spec, env, check)
        return check


def _advise_on_alike(spec: FleetSpec, env: EnvAdapter, check: Check) -> None:
    """Say which arguments give all environments the same random numbers."""
    given, advice = spec.env_kwargs or {}, check.examples.advice
    is_seeded = env.takes_seed and "seed" not in advice
    fixed = [k for k, x in given.items() if isinstance(x, GENERATORS) or (k == "seed" and not is_seeded)]
    if fixed and spec.global_B > 1:
        advice["alike"] = (
            f"{env.name}: all {spec.global_B} environments are made with "
            f"{', '.join(f'{key}={given[key]!r:.60}' for key in fixed)}, or a copy of it. What no reset with a seed "
            "seeds is the same in all. Let EnvCls take a parameter env_seed instead, for which the sampler gives each "
            "environment a number of its own (docs/howto/own_environment.md)."
        )
        if not env.takes_seed:
            advice.pop("seed", None)


def _checked(spec: FleetSpec, env: EnvAdapter, seed: int, env_seed: int) -> Check:
    """Check an environment that was just built, and whether states bring it back."""
    as_built = AsBuilt(env) if spec.evaluates else None
    check = Check(examine_env(env, seed))
    # Its state is not tried out if nothing needs it: one of much data takes long to copy.
    not_set_back = as_built.why_not if as_built else "Nothing is evaluated."
    if not_set_back and not spec.saves_state:
        return check._replace(why_not_set_back=not_set_back)
    why = env.why_no_state()
    another = partial(make_env, spec.EnvCls, spec.env_kwargs or {}, spec.env_ranks[0], env_seed=env_seed)
    lost = None if why else why_not_restored(env, another, seed)
    if as_built is not None and not (not_set_back or lost):
        not_set_back = as_built.set_back()
    return check._replace(why_lost=lost, why_not_set_back=not_set_back or lost)


@contextmanager
def _torch_as_it_was() -> Iterator[None]:
    """Check that an environment has not changed settings of torch that the agent's networks depend on."""
    dtype, grad = torch.get_default_dtype(), torch.is_grad_enabled()
    yield
    changed = []
    if torch.get_default_dtype() != dtype:
        changed.append(f"set torch's default dtype to {torch.get_default_dtype()}")
    if torch.is_grad_enabled() != grad:
        changed.append("switched torch's gradients off for all that follows")
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(grad)
    if changed:
        raise EnvError(
            f"The environment has {' and '.join(changed)}, when it was made, reset or stepped. The networks of the "
            "agent are in the same process. Let it give dtypes to its own tensors, and use `with torch.no_grad():`."
        )


class Fleet:
    """Environments of one role in one process, all with the same spaces; `was_checked` if one was built before.

    If an environment cannot be built, or has other spaces, those built before are closed.
    """

    def __init__(self, spec: FleetSpec, was_checked: bool = True) -> None:
        self.spec = spec
        self._vector_env: VectorEnvAdapter | None = None
        self._envs: list[EnvAdapter] = []
        try:
            self.built = self._build()
        except EnvError as error:
            advice = self._advice(error.__cause__, was_checked)
            self.close()
            raise EnvError(f"{error}{advice}") from error.__cause__
        except BaseException:
            self.close()
            raise

    def _build(self) -> Built:
        spec = self.spec
        env_kwargs, noun, ranks, env_seeds = spec.env_kwargs or {}, spec.role.value, spec.env_ranks, spec.env_seeds()
        if makes_vector_env(spec.EnvCls):
            self._vector_env = make_vector_env(spec.EnvCls, env_kwargs, ranks, env_seed=env_seeds[0])
            return Built(self._vector_env.name, noun, ranks, self._vector_env.spaces)
        for rank, env_seed in zip(ranks, env_seeds, strict=True):
            self._envs.append(env := make_env(spec.EnvCls, env_kwargs, rank, env_seed=env_seed))
            Built(env.name, noun, [rank], env.spaces).check_spaces(self._envs[0].spaces)
        return Built(self._envs[0].name, noun, ranks, self._envs[0].spaces)

    def _advice(self, cause: BaseException | None, was_checked: bool) -> str:
        """Return advice for the case that a process can hold only one environment."""
        text, is_evaluation = "", self.spec.role is FleetRole.EVAL
        if (self._envs or is_evaluation) and isinstance(cause, RuntimeError | OSError):
            alone = (
                "eval_n_envs=1 and eval_beside=True evaluate in a process of its own (--sampler.eval-n-envs 1 "
                "--eval-beside; rlpyt eval has --n-envs 1)"
                if is_evaluation
                else "CpuSampler and GpuSampler give each environment a process of its own, with n_workers=batch_B"
            )
            text = (
                f"\nThe {self.spec.role.value} was made beside others in this process. If that can hold only one, as "
                f"with some emulators: {alone}."
            )
        if was_checked and not isinstance(cause, TypeError):
            text += (
                "\nAn environment was built, checked and closed before. One that writes a file or takes a port of its "
                "own, and refuses what is there, needs another name or number each time."
            )
        return text

    def part(self, rows: Rows, check: Check | None = None, progress: Progress | None = None) -> LocalPart:
        """Return the environments as a part that fills these rows; the check is needed where info is recorded."""
        spec = self.spec
        recorder = info_recorder(spec.env_info_keys, check.examples.info if check else {})
        have_masks = isinstance(rows.observation, NamedArrayTuple) and MASK in rows.observation
        for env in self._all():
            env.masks.take_from_info(have_masks)
        if self._vector_env is not None:
            if check is not None:
                self._vector_env.can_reset_some = check.can_reset_some
            return NativePart(spec, self._vector_env, rows, recorder, progress)
        sets_back = spec.sets_back or (spec.role is FleetRole.EVAL and check is not None and not check.why_not_set_back)
        as_built = [AsBuilt(env) for env in self._envs] if sets_back else []
        return ListPart(spec, self._envs, rows, recorder, progress, check and check.why_lost, as_built)

    def started_part(self, rows: Rows, check: Check, progress: Progress | None = None) -> LocalPart:
        """Return the environments as a part that stands at its first row.

        Training environments are seeded, and brought apart by random steps; every evaluation seeds its own. Those of a
        new worker begin new episodes after the row at hand, with seeds of their own.
        """
        spec, part = self.spec, self.part(rows, check, progress)
        if spec.restarts:
            part.begin_after_loss(spec.restart_seeds())
        elif spec.role is FleetRole.TRAIN:
            part.reset(spec.seeds())
            if spec.max_decorrelation_steps > 0:
                rngs = [numpy_generator(spec.seed, Role.DECORRELATION, rank) for rank in spec.env_ranks]
                part.decorrelate(spec.max_decorrelation_steps, rngs)
        return part

    def close(self) -> None:
        """Close all; an error of one keeps no other open, and hides no error that ended the run."""
        for env in self._all():
            close_env(env)

    def _all(self) -> Sequence[EnvAdapter | VectorEnvAdapter]:
        return self._envs if self._vector_env is None else [self._vector_env]


def close_env(env: EnvAdapter | VectorEnvAdapter) -> None:
    """Close an environment; where that raises, a warning in the log says so."""
    try:
        env.close()
    except BaseException as error:
        if is_end_of_run(error):
            raise
        ranks: Any = env.ranks if isinstance(env, VectorEnvAdapter) else env.rank
        current_logger().warn(f"{env.name} (rank {ranks}) was not closed: {type(error).__name__}: {error}")


class FleetServer(CallServer):
    """Server of a worker with environments; the calls that do not depend on which process acts.

    Cores of None are left to the system.
    """

    process: ClassVar[str] = "worker"
    """Kind of the worker, by which the state of its global generators is known again."""
    stream: ClassVar[Role] = Role.WORKER
    """Of the global generators of the process."""
    training: Environments
    """What steps the training environments; known once the work has started."""

    def __init__(
        self, rank: int, progress: Progress, specs: Specs, cpus: list[int] | None, own_generators: bool = True
    ) -> None:
        if cpus is not None:
            psutil.Process().cpu_affinity(cpus)
        self.specs, self.progress, self.own_generators = specs, progress, own_generators
        spec = next(iter(specs.values()))
        progress.env_rank = spec.env_ranks[0]
        self._fleets: dict[FleetRole, Fleet] = {}
        # Environments may draw from the global generators, which start alike in workers that were forked from one.
        if own_generators:
            set_seed(stream_seed(spec.seed, self.stream, progress.env_rank, spec.restarts))

    def check(self) -> Check:
        """Build, try and close one environment; return the result of the check."""
        return check_one(self.specs[FleetRole.TRAIN])

    def build(self) -> list[Built]:
        """Build all environments; return what each fleet is like."""
        for role, spec in self.specs.items():
            self._fleets[role] = Fleet(spec)
        return [fleet.built for fleet in self._fleets.values()]

    def started_parts(self, check: Check, rows: Mapping[FleetRole, Rows]) -> dict[FleetRole, LocalPart]:
        """Return the parts of this worker, which fill these rows."""
        return {role: fleet.started_part(rows[role], check, self.progress) for role, fleet in self._fleets.items()}

    def wake(self) -> None:
        """Reset the environments that rest."""
        self.training.wake()

    def state_dict(self) -> StateDict:
        """Return the states of the training environments and of this process's generators."""
        state, ranks = self.training.state_dict(), self.specs[FleetRole.TRAIN].env_ranks
        if not self.own_generators:
            return state
        own = {"process": self.process, "generators": global_streams()}
        return joined([state, {"streams": [piece(ranks, own)]}])

    def load_state_dict(self, state_dict: StateDict) -> Loaded:
        """Load the result of `state_dict`."""
        loaded = self.training.load_state_dict(state_dict) or Loaded()
        if not self.own_generators:
            return loaded
        ranks = self.specs[FleetRole.TRAIN].env_ranks
        for one in state_dict["streams"]:
            if one["state"]["process"] == self.process and list(one["ranks"]) == list(ranks):
                set_global_streams(one["state"]["generators"])  # last, as all else that is loaded may draw
                return loaded._replace(n_streams=loaded.n_streams + 1)
        return loaded._replace(n_without_stream=loaded.n_without_stream + 1)

    def close(self) -> None:
        """Close the environments."""
        for fleet in self._fleets.values():
            fleet.close()

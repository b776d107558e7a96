"""Fleets: the environments of one role in one process, built, checked and closed together."""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import Any, NamedTuple

from rlpyt.envs import (
    EnvAdapter,
    EnvError,
    EnvExamples,
    VectorEnvAdapter,
    check_env,
    check_vector_env,
    info_recorder,
    make_env,
    make_vector_env,
    makes_vector_env,
)
from rlpyt.envs.state_check import why_not_restored
from rlpyt.samplers.as_built import AsBuilt
from rlpyt.samplers.buffer import Rows
from rlpyt.samplers.fleet_spec import FleetRole, FleetSpec
from rlpyt.samplers.native_part import NativePart
from rlpyt.samplers.parts import ListPart, LocalPart
from rlpyt.spaces import EnvSpaces, same_rows
from rlpyt.types import traj_info_maker
from rlpyt.utils.progress import Progress
from rlpyt.utils.seeds import Role, numpy_generator, stream_seed


class Built(NamedTuple):
    """Environments with the same spaces, for messages."""

    name: str
    noun: str
    ranks: list[int]
    spaces: EnvSpaces

    def check_spaces(self, expected: EnvSpaces) -> None:
        """Refuse spaces with other rows than expected: numpy would broadcast a small one in silence."""
        if not (same_rows(self.spaces.observation, expected.observation) and self.spaces.action == expected.action):
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
        """Refuse environments whose spaces are not those of the one that was checked."""
        for one in built:
            one.check_spaces(self.examples.spaces)


def check_one(spec: FleetSpec) -> Check:
    """Build and check an environment, and close it again.

    An environment may remember what it has seen: random numbers drawn, episodes completed. So one that was checked is
    not used. It is closed before others are built, which may need its licence, port or memory.

    Raises:
        EnvError: if it cannot be built, or does not keep to its spaces.
    """
    seed, env_kwargs = stream_seed(spec.seed, Role.ENV_CHECK), dict(spec.env_kwargs or {})
    if makes_vector_env(spec.EnvCls):
        vector_env = make_vector_env(spec.EnvCls, env_kwargs, spec.env_ranks)
        try:
            examples = check_vector_env(vector_env, seed)
            return Check(examples, vector_env.can_reset_some, why_not_set_back=vector_env.why_no_state())
        finally:
            _close(vector_env)
    env = make_env(spec.EnvCls, env_kwargs, spec.env_ranks[0])
    try:
        as_built = AsBuilt(env) if spec.tries_state else None
        check = Check(check_env(env, seed))
        if as_built is None:
            return check
        why = env.why_no_state()
        lost = None if why else why_not_restored(env, lambda: _another(spec), seed)
        return check._replace(why_lost=lost, why_not_set_back=why or lost or as_built.set_back())
    finally:
        _close(env)


def _another(spec: FleetSpec) -> EnvAdapter:
    """Return a second environment like the one that is checked, whose constructor may have changed its arguments."""
    return make_env(spec.EnvCls, deepcopy(dict(spec.env_kwargs or {})), spec.env_ranks[0])


class Fleet:
    """Environments of one role in one process, all with the same spaces.

    Args:
        spec: says what to build.

    Raises:
        EnvError: if an environment cannot be built, or has other spaces; those built before are closed.
    """

    def __init__(self, spec: FleetSpec) -> None:
        self.spec = spec
        self._vector_env: VectorEnvAdapter | None = None
        self._envs: list[EnvAdapter] = []
        try:
            self.built = self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> Built:
        spec = self.spec
        env_kwargs, noun, ranks = dict(spec.env_kwargs or {}), spec.role.noun, spec.env_ranks
        if makes_vector_env(spec.EnvCls):
            self._vector_env = make_vector_env(spec.EnvCls, env_kwargs, ranks)
            return Built(self._vector_env.name, noun, ranks, self._vector_env.spaces)
        for rank in ranks:
            try:
                env = make_env(spec.EnvCls, env_kwargs, rank)
            except EnvError as error:
                raise self._with_advice(error) from error.__cause__
            self._envs.append(env)
            Built(env.name, noun, [rank], env.spaces).check_spaces(self._envs[0].spaces)
        return Built(self._envs[0].name, noun, ranks, self._envs[0].spaces)

    def _with_advice(self, error: EnvError) -> EnvError:
        """Return the error of an environment beside others, with what to do if a process can hold only one."""
        is_evaluation = self.spec.role is FleetRole.EVAL
        if not (self._envs or is_evaluation) or not isinstance(error.__cause__, RuntimeError | OSError):
            return error
        advice = (
            "eval_n_envs=1 and eval_beside=True evaluate in a process of its own (--sampler.eval-n-envs 1 "
            "--eval-beside; rlpyt eval has --n-envs 1)"
            if is_evaluation
            else "CpuSampler and GpuSampler give each environment a process of its own, with n_workers=batch_B"
        )
        return EnvError(
            f"{error}\nThe {self.spec.role.noun} was made beside others in this process. If that can hold only one, as "
            f"with some emulators: {advice}."
        )

    def part(self, rows: Rows, check: Check | None = None, progress: Progress | None = None) -> LocalPart:
        """Return the environments as a part that fills these rows.

        Args:
            rows: the memory of these environments only.
            check: result of the check at the start; needed where info is recorded.
            progress: where the part notes what it is at.
        """
        spec = self.spec
        keys, wait_reset = list(spec.env_info_keys), not spec.mid_batch_reset
        new_traj_info = traj_info_maker(spec.TrajInfoCls, spec.traj_info_kwargs)
        recorder = info_recorder(spec.env_info_keys, check.examples.info if check and keys else {})
        if self._vector_env is None:
            record = recorder.record if keys else None
            part = ListPart(self._envs, rows, record, new_traj_info, progress, wait_reset)
            if check is not None:
                part.why_lost = check.why_lost
            if spec.sets_back or (spec.role is FleetRole.EVAL and check is not None and not check.why_not_set_back):
                part.as_built = [AsBuilt(env) for env in self._envs]
            return part
        if check is not None:
            self._vector_env.can_reset_some = check.can_reset_some
        nulls = {key: recorder.example[key] for key in keys}
        return NativePart(self._vector_env, rows, nulls, new_traj_info, progress, wait_reset)

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
        for env in self._envs if self._vector_env is None else [self._vector_env]:
            _close(env)


def _close(env: EnvAdapter | VectorEnvAdapter) -> None:
    try:
        env.close()
    except Exception as error:
        ranks: Any = env.ranks if isinstance(env, VectorEnvAdapter) else env.rank
        warnings.warn(f"{env.name} (rank {ranks}) was not closed: {type(error).__name__}: {error}", stacklevel=2)

"""What all algorithms with a replay share: building it, filling it, and drawing from it at the replay ratio."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from rlpyt.algos.base import RlAlgorithm
from rlpyt.algos.replay_checks import check_parts, check_sequences, check_unique_draws
from rlpyt.algos.returned import part_of
from rlpyt.core import Replay
from rlpyt.functional import Linear, ScheduleLike, sequence_priority, valid_mean
from rlpyt.replays import (
    Index,
    PrioritizedIndex,
    Reading,
    ReplayBuffer,
    RowStorage,
    SamplesToBuffer,
    Sequences,
    Transitions,
    UniformIndex,
    mapped_file,
)
from rlpyt.settings import Hyper
from rlpyt.spaces import frame_counts
from rlpyt.types import BatchSpec, Run, Samples
from rlpyt.utils.arrays import buffer_from_example, buffer_func, buffer_to
from rlpyt.utils.seeds import Role, numpy_generator


class Outputs(NamedTuple):
    """What a network and its target give at the rows of a batch, [M] or [T, M] leading."""

    online: Any
    """Of the network, at the rows, with gradient."""
    next_online: Any
    """Of the network, at the rows that are bootstrapped from, without gradient; None if it was not asked for."""
    next_target: Any
    """Of the target network, at the rows that are bootstrapped from."""


@dataclass(kw_only=True, eq=False)
class OffPolicyAlgo(RlAlgorithm):
    """Base of the algorithms that learn from a replay.

    A feed-forward agent learns from transitions; a recurrent one from sequences, for which `batch_T` and `batch_B` must
    be given.
    """

    batch_size: int = 32
    """Transitions an update; with sequences it is (warmup_T + batch_T) * batch_B whatever is given."""
    min_steps_learn: int = int(5e4)
    """Steps, all environments counted, that the first update waits for."""
    replay_size: int = int(1e6)
    """Rows that the replay holds, all environments counted."""
    replay_ratio: float = 8.0
    """Rows consumed by updates for every row collected, rounded to whole updates an iteration; warm-up rows count."""
    n_step_return: int = 1
    """Rewards in the target before the bootstrap."""
    target_update_tau: ScheduleLike = 1.0
    """Fraction by which the target networks move at every target update; 1 copies."""
    target_update_interval: int = 1
    """Updates between target updates."""
    frame_stack: int | None = None
    """Frames in an observation's stack, of which the replay keeps each once; None asks the observation space
    (`AtariEnv` and the vector environments of Atari tell), 1 keeps whole observations."""
    replay_folder: str | None = None
    """Where a replay larger than the memory lies, in a file; None keeps it in memory."""

    prioritized_replay: bool = False
    """Whether rows are drawn in proportion to priority ** pri_alpha (Schaul et al. 2016)."""
    pri_alpha: float = 0.6
    """Exponent of the priorities, from 0."""
    pri_beta_init: float = 0.4
    """Exponent of the importance weights at the start."""
    pri_beta_final: float = 1.0
    """The same after `pri_beta_steps`."""
    pri_beta_steps: float = 50e6
    """Steps from the one to the other."""
    default_priority: float | None = None
    """Priority of new rows; None is the largest given so far, 1 at first."""
    input_priorities: bool | None = False
    """Whether new rows get priorities from what the agent recorded as it acted; None where replay is prioritised."""
    unique_draws: bool = False
    """Whether no row comes twice in one prioritised batch."""

    ReplayCls: Callable[..., Replay] | None = None
    """Makes the replay, called with what `ReplayBuffer` is called with; None is `ReplayBuffer`."""
    IndexCls: Callable[[np.random.Generator], Index] | None = None
    """Makes an index of one's own, called with the replay's random stream; None is the library's."""

    batch_T: int | None = None
    """Rows of a sequence to train on."""
    batch_B: int | None = None
    """Sequences an update."""
    warmup_T: int = 0
    """Rows before them that bring the recurrent state up to date, without a loss."""
    store_rnn_state_interval: int = 1
    """Time steps from one recurrent state that the replay keeps to the next; sequences begin there. 0 keeps none:
    sequences begin anywhere with a state of zeros."""
    pri_eta: float = 0.9
    """Weight of the largest against the mean TD error in the priority of a sequence."""

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        super().__post_init__()
        for name in ("batch_size", "replay_size", "target_update_interval", "n_step_return"):
            setattr(self, name, self.whole(name))
        for name in ("min_steps_learn", "warmup_T", "store_rnn_state_interval"):
            setattr(self, name, self.whole(name, least=0))
        for name in ("batch_T", "batch_B", "frame_stack"):
            if getattr(self, name) is not None:
                setattr(self, name, self.whole(name))
        if self.batch_T is not None and self.batch_B is not None:
            self.batch_size = (self.warmup_T + self.batch_T) * self.batch_B
        if self.input_priorities is None:
            self.input_priorities = self.prioritized_replay
        self.check("replay_ratio", lambda x: 0.0 < x < float("inf"), "above 0")
        self.check("target_update_tau", lambda x: 0.0 < x <= 1.0, "a number in (0, 1]")
        self.check("pri_alpha", lambda x: x >= 0.0, "a number from 0")
        for name in ("pri_beta_init", "pri_beta_final", "pri_eta"):
            self.check(name, lambda x: 0.0 <= x <= 1.0, "a number in [0, 1]")
        self.check("pri_beta_steps", lambda x: x >= 1.0, "at least 1 step")
        given = [n for n in ("default_priority", "unique_draws", "input_priorities") if getattr(self, n)]
        if given and not self.prioritized_replay:
            raise ValueError(
                f"{type(self).__name__}: {', '.join(given)} set with prioritized_replay=False, where there are no "
                "priorities; expected prioritized_replay=True. Set it, or leave the other out."
            )
        unused = [n for n in ("default_priority", "unique_draws") if getattr(self, n)]
        check_parts(type(self).__name__, {"ReplayCls": self.ReplayCls, "IndexCls": self.IndexCls}, unused)

    def initialize(self, agent: Any, run: Run) -> None:
        """Build optimiser and replay; refuse settings that do not fit the agent, and a run without updates."""
        name = type(self).__name__
        if not run.mid_batch_reset:
            raise ValueError(
                f"{name}: the sampler lets environments rest until its batch is over (mid_batch_reset=False), and the "
                "final observation of an episode that ends with the batch reaches no replay; expected "
                "mid_batch_reset=True."
            )
        check_sequences(name, agent, self.batch_T, self.batch_B)
        assert run.example is not None
        super().initialize(agent, run)
        # The ratio counts rows of all replicas, and every replica consumes a batch an update.
        self.updates_per_optimize = round(self.replay_ratio * run.batch_spec.size / self.batch_size)
        self.min_itr_learn = max(0, math.ceil(self.min_steps_learn / self.steps_per_itr) - 1)
        self.pri_beta = Linear(self.pri_beta_init, self.pri_beta_final, steps=self.pri_beta_steps)
        rng = numpy_generator(run.seed, Role.ALGO, run.rank)
        self.initialize_replay_buffer(run.example, run.batch_spec, run.world_size, rng)
        self._check_replay()
        self._check_updates(run.n_itr)

    def _check_replay(self) -> None:
        """Refuse what an `initialize_replay_buffer` of one's own set, where it is no replay."""
        replay = vars(self).get("replay")
        if not isinstance(replay, Replay):
            raise TypeError(
                f"{type(self).__name__}: initialize_replay_buffer set self.replay to {replay!r:.100}; expected an "
                "rlpyt.core.Replay, such as a ReplayBuffer of parts, which may be your own (docs/replay.md). For "
                "another memory use RlAlgorithm."
            )

    def _check_updates(self, n_itr: int) -> None:
        """Refuse a run without updates, and one whose first update finds nothing to draw in the replay."""
        name, (T, B) = type(self).__name__, self.batch_spec
        if self.updates_per_optimize < 1:
            size = "batch_B, batch_T or warmup_T" if self.agent.recurrent else "batch_size"
            raise ValueError(
                f"{name}: {T} x {B} rows an iteration at replay_ratio {self.replay_ratio:g} are "
                f"{self.replay_ratio * T * B:g} rows to consume, which is no update of batch_size {self.batch_size}; "
                f"expected at least one. Collect more rows an iteration, lower {size}, or raise replay_ratio to "
                f"{self.batch_size / (T * B):g}."
            )
        if self.min_itr_learn >= n_itr:
            raise ValueError(
                f"{name}: min_steps_learn is {self.min_steps_learn:,}, but the run has only {self.n_steps:,} steps: "
                "there would be no update at all. Lower min_steps_learn or raise n_steps."
            )
        held, least = (self.min_itr_learn + 1) * T, self.replay.least_rows
        if held < least:
            raise ValueError(
                f"{name}: the first update would find {held} rows of each environment in the replay; expected at least "
                f"{least} with n_step_return {self.n_step_return}. Raise min_steps_learn to "
                f"{least * self.steps_per_itr // T:,} or more."
            )
        if self.unique_draws:
            check_unique_draws(name, self.replay, B, held, self.batch_B or self.batch_size)

    # ---- replay ----

    def initialize_replay_buffer(self, examples: Samples, batch_spec: BatchSpec, world_size: int, rng: Any) -> None:
        """Allocate the replay: this replica's share of `replay_size`."""
        reading = part_of(self, "reading", self.reading(), Reading)
        interval = self.store_rnn_state_interval if self.agent.recurrent else 0
        n_frames = frame_counts(self.agent.env_spaces.observation) if self.frame_stack is None else self.frame_stack
        storage = RowStorage(
            part_of(self, "samples_to_buffer", self.samples_to_buffer(examples), SamplesToBuffer),
            T=math.ceil(self.replay_size / world_size / batch_spec.B / reading.interval) * reading.interval,
            B=batch_spec.B,
            n_frames=n_frames,
            rnn_state_interval=interval,
            allocate=buffer_from_example if self.replay_folder is None else mapped_file(self.replay_folder),
        )
        index = part_of(self, "index", self.index(rng), Index)
        if self.prioritized_replay and not index.takes_priorities:
            raise ValueError(
                f"{type(self).__name__}: prioritized_replay is True, but its index, a {type(index).__name__}, takes no "
                "priorities; expected both or neither. Leave prioritized_replay out, or return another index."
            )
        replay = (self.ReplayCls or ReplayBuffer)(
            storage,
            index,
            reading,
            discount=float(self.hyper(0).discount),
            input_priorities=bool(self.input_priorities),
            eta=self.pri_eta,
        )
        self.replay: Replay = part_of(self, "ReplayCls", replay, Replay)

    @property
    def replay_buffer(self) -> Replay:
        """The replay, by its name in rlpyt 0.1."""
        return self.replay

    @replay_buffer.setter
    def replay_buffer(self, replay: Replay) -> None:
        self.replay = replay

    def reading(self) -> Reading:
        """Return the reading of the replay: transitions, or sequences for a recurrent agent."""
        if not self.agent.recurrent:
            return Transitions(self.n_step_return)
        assert self.batch_T is not None
        return Sequences(self.batch_T, self.warmup_T, self.n_step_return, self.store_rnn_state_interval)

    def index(self, rng: np.random.Generator) -> Index:
        """Return the index of the replay, which draws from `rng`, the replay's own random stream."""
        if self.IndexCls is not None:
            index = part_of(self, "IndexCls", self.IndexCls(rng), Index)
            index.alpha, index.beta = self.pri_alpha, self.pri_beta_init
            return index
        if not self.prioritized_replay:
            return UniformIndex(rng)
        return PrioritizedIndex(rng, self.pri_alpha, self.pri_beta_init, self.default_priority, self.unique_draws)

    def samples_to_buffer(self, samples: Samples) -> SamplesToBuffer:
        """Return the rows of a batch that the replay stores."""
        agent, env = samples
        rnn_state = agent.agent_info.prev_rnn_state if self.agent.recurrent else None
        return SamplesToBuffer(
            observation=env.observation,
            action=agent.action,
            reward=env.reward,
            terminated=env.terminated,
            truncated=env.truncated,
            valid=env.valid,
            prev_rnn_state=rnn_state,
            prev_action=agent.prev_action,
            prev_reward=env.prev_reward,
        )

    def append(self, itr: int, samples: Samples, hyper: Hyper) -> None:
        """Store a batch, and give the replay the hyper-parameters as they stand at this iteration."""
        errors = self.input_errors(samples, hyper) if self.input_priorities else None
        self.replay.append_samples(self.samples_to_buffer(samples), errors)
        self.agent.update_obs_rms(samples.env.observation, samples.env.valid)
        self.replay.set_hyper(discount=hyper.discount, beta=self.pri_beta(itr * self.steps_per_itr))

    def input_errors(self, samples: Samples, hyper: Hyper) -> torch.Tensor:
        """Return the absolute TD errors [T, B] that `Replay.append_samples` takes with a batch of T rows."""
        raise TypeError(f"{type(self).__name__}: has no priorities of new rows; expected input_priorities=False.")

    def update_batches(self) -> Iterator[Any]:
        """Yield what each update of an iteration learns from, with the networks' randomness drawn anew."""
        for _ in range(self.updates_per_optimize):
            batch = self.sample_batch()
            self.agent.draw_randomness(self.generator)
            yield batch
        # So that nothing that is asked of the networks between updates moves the stream.
        self.agent.draw_randomness(None)

    def sample_batch(self) -> Any:
        """Draw the batch of one update, on the agent's device."""
        batch = self.replay.sample_batch(self.batch_B or self.batch_size)
        # The replay is on the CPU; and the recurrent core reads there where to cut, without a synchronisation.
        on_cpu = {"places": batch.places}
        if self.agent.recurrent:
            on_cpu["episode_start"] = batch.episode_start
        return buffer_to(batch._replace(**dict.fromkeys(on_cpu)), self.agent.device)._replace(**on_cpu)

    def forward(self, batch: Any, network: Any, target_network: Any, with_next: bool) -> Outputs:
        """Return what a network and its target give at the rows of a batch.

        Args:
            batch: transitions, or sequences, which are unrolled from the stored state after their warm-up.
            network: called with observation, previous action and reward, and for sequences with the state before the
                first row and `episode_start`; returns [.., M] or [.., T, M] leaves.
            target_network: likewise, without gradient.
            with_next: whether the network's own outputs at the rows that are bootstrapped from are needed.
        """
        if not self.agent.recurrent:
            online = network(*batch.agent_inputs)
            with torch.no_grad():
                next_ = network(*batch.target_inputs) if with_next else None
            return Outputs(online, next_, target_network(*batch.target_inputs))
        W, T = self.warmup_T, len(batch.action)
        state = target_state = batch.init_rnn_state
        if W:
            state, target_state = self.agent.warm_up(batch.all_inputs[:W], state, batch.episode_start[:W])
        inputs, episode_start = batch.all_inputs[W:], batch.episode_start[W:]
        everything = network(*inputs, state, episode_start)
        bootstrap = bootstrap_rows(batch.steps)
        next_ = buffer_func(everything, torch.Tensor.detach)[bootstrap] if with_next else None
        return Outputs(everything[:T], next_, target_network(*inputs, target_state, episode_start)[bootstrap])

    def mean_loss(self, loss: torch.Tensor, batch: Any) -> torch.Tensor:
        """Return the means of losses [..., M] or [..., T, M] over the rows to train on, by their importance weights."""
        return self.mean_of_rows(loss if batch.is_weights is None else loss * batch.is_weights, batch)

    def mean_of_rows(self, x: torch.Tensor, batch: Any) -> torch.Tensor:
        """Return the means of x [..., M] or [..., T, M] over the rows to train on, all weighing the same."""
        if not self.agent.recurrent:
            return x.mean(-1)
        return valid_mean(x, batch.valid.expand_as(x), dim=(-2, -1))

    def mean_error(self, td_abs_error: torch.Tensor, batch: Any) -> torch.Tensor:
        """Return the errors [M] of transitions, or their means over the rows to train on of sequences."""
        return valid_mean(td_abs_error, batch.valid, dim=0) if self.agent.recurrent else td_abs_error

    def update_priorities(self, batch: Any, td_abs_error: torch.Tensor) -> torch.Tensor:
        """Give the rows or sequences of a batch their new priorities, [M], and return them."""
        priority = sequence_priority(td_abs_error, batch.valid, self.pri_eta) if self.agent.recurrent else td_abs_error
        if self.replay.takes_priorities:
            self.replay.update_priorities(batch.places, priority.cpu())
        return priority

    # ---- plan and state ----

    def plan(self) -> dict[str, Any]:
        """Return what will be done an iteration."""
        return {
            **super().plan(),
            "updates an iteration": self.updates_per_optimize,
            "replay ratio": f"{self.updates_per_optimize * self.batch_size / self.batch_spec.size:g}",
            "first update at step": (self.min_itr_learn + 1) * self.steps_per_itr,
            "replay rows": self.replay.size,
            "replay bytes": self.replay.nbytes,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return optimiser, counter, random stream and replay."""
        return {**super().state_dict(), "replay": self.replay.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned; a replay unlike this one is refused before anything was changed."""
        self.replay.load_state_dict(state_dict["replay"])
        super().load_state_dict(state_dict)


def bootstrap_rows(steps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the index of the rows that lie `steps` [T, M] after rows [T, M]."""
    T, M = steps.shape
    return torch.arange(T, device=steps.device)[:, None] + steps, torch.arange(M, device=steps.device)

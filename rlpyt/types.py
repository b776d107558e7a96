"""The words of the library: what a row, a batch and a trajectory are made of.

A batch has `[T, B]` leading dimensions: T time steps of B environments. Row `[t, b]` holds the observation, the
action taken on it, the reward and the flags of that step. Where the step at t ended an episode, row t + 1 holds
the final observation with null action and zero reward and is not `valid`; row t + 2 starts the next episode.
So the state that the action of row t led to is always in row t + 1.

A simulator that steps all its environments in lock step has no row to spare. Its batches, those of `DeviceSampler`,
are on its device, row t + 1 starts the next episode at once, and `final_observation` holds what row t led to.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rlpyt.namedarraytuple import Buffer, NamedArrayTuple
from rlpyt.utils.progress import Progress
from rlpyt.utils.replicas import Replicas
from rlpyt.utils.rw_lock import NoLock

StateDict: TypeAlias = Mapping[str, Any]
"""State of an object as plain data: tensors, numbers, texts, and lists and dictionaries of them."""
Kwargs: TypeAlias = Mapping[str, Any]
"""Arguments by name of a class or function that the user chose."""
Info: TypeAlias = Mapping[str, Any]
"""What an environment tells beside observation and reward, by name."""


class RingRows(dict[str, Any]):
    """State of a ring buffer: plain data, of which a checkpoint writes every row once.

    Its keys are `T`, the time steps of the ring; `written`, those written so far; `intervals`, time steps from one
    entry of an array to the next, by name; and `arrays`, the part that is held: by name a tensor [T / interval, ...]
    that shares the ring's memory. A row does not change any more once two others are written after it. Further keys are
    the state of its other parts. A pickle or deep copy is a dict.
    """

    now: Callable[[], int]
    """Returns the time steps written by now, those that are being written included."""

    def __reduce__(self) -> tuple[object, ...]:
        # torch.load(weights_only=True) takes this kind of dictionary, and no other that says what it is.
        return OrderedDict, (), None, None, iter(self.items())

    def specs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Return shape and dtype of the part of every array that is held."""
        arrays = {name: np.asarray(array) for name, array in self["arrays"].items()}
        return {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}

    def read_into(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy the rows into arrays of the same names and shapes."""
        for name, array in arrays.items():
            array[:] = np.asarray(self["arrays"][name])


class BatchSpec(NamedTuple):
    """The size of one sampler batch."""

    T: int
    """Time steps."""
    B: int
    """Environments, those of all workers together (of this replica)."""

    @property
    def size(self) -> int:
        """Rows in a batch."""
        return self.T * self.B


def _no_methods(names: Sequence[str]) -> Mapping[str, Callable[..., Buffer]]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Run:
    """Facts of a run that its parts are given before it starts."""

    batch_spec: BatchSpec
    """Rows of one iteration, of this replica."""
    n_itr: int = 1
    """Iterations that the run will make."""
    seed: int = 0
    """Of all random streams."""
    replicas: Replicas = field(default_factory=Replicas)
    """This replica and those that it agrees with."""
    mid_batch_reset: bool = True
    """Whether an environment goes on with a new episode inside a batch; else it rests until the batch is over."""
    final_rows: bool = True
    """Whether the final observation of an episode is a row of its own; else it is in `final_observation`, and the rows
    are on the device of the environments."""
    bootstrap_value: bool = False
    """Whether the sampler records the value of the observation after the last row."""
    bootstrap_inputs: bool = False
    """Whether the sampler records what the agent sees at the row after the last one."""
    traj_info_kwargs: Kwargs = field(default_factory=dict)
    """Arguments of `TrajInfoCls`."""
    affinity: Mapping[str, Any] = field(default_factory=dict)
    """Cores and devices; see `rlpyt.utils.affinity.Affinity`."""
    n_batches: int = 1
    """Batches that the sampler's memory holds; that of iteration itr is in place itr % n_batches."""
    share_memory: bool = False
    """Whether other processes read the sampler's memory."""
    eval_beside: bool = False
    """Whether a process of its own evaluates; the sampler then builds no evaluation environments."""
    lock: NoLock = field(default_factory=NoLock)
    """Of what the algorithm shares with another process, such as its replay."""
    saves_state: bool = True
    """Whether states of the sampler are saved; an environment that seems to have one is then tried out at the start."""
    progress: Progress | None = None
    """Where a sampler in a process of its own notes that it goes on."""
    env_methods: Callable[[Sequence[str]], Mapping[str, Callable[..., Buffer]]] = _no_methods
    """Returns those of some methods that the sampler's environments have, by name; known once it is initialised."""
    example: Samples | None = None
    """One row of the samples, as numpy, without leading dimensions; known once the sampler is initialised."""

    @property
    def world_size(self) -> int:
        """Replicas."""
        return self.replicas.world_size

    @property
    def rank(self) -> int:
        """Number of this replica, from 0."""
        return self.replicas.rank

    @property
    def steps_per_itr(self) -> int:
        """Environment steps of one iteration, all replicas counted."""
        return self.batch_spec.size * self.world_size

    @property
    def n_steps(self) -> int:
        """Environment steps of the run, all replicas counted."""
        return self.n_itr * self.steps_per_itr


class AgentInputs(NamedArrayTuple):
    """What every agent is given, each with leading dimensions [], [B] or [T, B]."""

    observation: Buffer
    prev_action: Buffer
    prev_reward: Buffer


class AgentInputsRnn(NamedArrayTuple):
    """What a recurrent agent is given in training: the inputs, and its state before the first row.

    For scripts of rlpyt 0.1: the agents here take the state as an argument of its own.
    """

    observation: Buffer
    prev_action: Buffer
    prev_reward: Buffer
    init_rnn_state: Buffer


class AgentStep(NamedArrayTuple):
    """What an agent answers in sampling: the action, and whatever else the algorithm needs of it."""

    action: Buffer
    agent_info: Buffer = None


class AgentSamples(NamedArrayTuple):
    """What the agent did, [T, B]."""

    action: Buffer
    """In the space's row form (see `rlpyt.spaces`)."""
    prev_action: Buffer
    """A view of `action` one row back; null at an episode's start."""
    agent_info: Buffer
    """What the agent's `step` returned: distribution parameters, value, recurrent state before the step, ..."""
    bootstrap_value: Buffer = None
    """[1, B] value of the observation after the last row, where the algorithm asked for it."""
    bootstrap_inputs: Buffer = None
    """`AgentInputs` [1, B] of the row after the last one, where the algorithm asked for them."""
    final_value: Buffer = None
    """[T, B] value of `final_observation` where the row truncated an episode, 0 elsewhere; None where final
    observations have rows of their own, or the algorithm asked for no values."""


class EnvSamples(NamedArrayTuple):
    """What the environments answered, [T, B]."""

    observation: Buffer
    """The observation that the row's action was chosen on."""
    reward: Buffer
    """float32, follows the row's action."""
    prev_reward: Buffer
    """A view of `reward` one row back; zero at an episode's start."""
    terminated: Buffer
    """bool, the row's action ended the episode in a terminal state: its value is zero."""
    truncated: Buffer
    """bool, the row's action ended the episode by a limit: the next row's value counts."""
    valid: Buffer
    """bool, train on this row; False where the row holds a final observation."""
    env_info: Buffer = None
    """The numbers of the environments' info dictionaries that were named to the sampler."""
    final_observation: Buffer = None
    """What the row's action led to where it truncated an episode, and the next row begins another one; of no meaning
    elsewhere. None where final observations have rows of their own."""

    @property
    def done(self) -> Buffer:
        """bool, the row's action ended the episode."""
        return self.terminated | self.truncated


class Samples(NamedArrayTuple):
    """One sampler batch; `samples.env[t, b]` is what the environment made of one row."""

    agent: AgentSamples
    env: EnvSamples


class Places(NamedArrayTuple):
    """Places in a replay where the transitions or sequences of a batch begin, [M] int64; they stay on the CPU.

    A start index is counted from the first one ever written. So it says which write of the ring the batch is from, and
    a priority that comes too late meets no other row.
    """

    start: Buffer
    """Start index, a row, or of sequences from stored states the number of the state."""
    env: Buffer
    """Number of the environment, from 0 to before B."""


SUCCESS_KEYS = ("is_success", "success")
"""Fields of info by which environments such as those of gymnasium-robotics and Meta-World say that a task is done."""


class InfoDict(dict[str, Any]):
    """Dictionary whose keys can be read as attributes, too: `info["x"]` and `info.x` are the same."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"The environment's info has no {name!r} in this step; it has {list(self)}. Use "
                f"env_info.get({name!r}, 0) for a field that is not always there."
            ) from None


class TrajInfo(MutableMapping[str, Any]):
    """Statistics of one trajectory, from a reset of the environment to the end of the game.

    Subclass it to log more: every public attribute becomes columns `<Name>Average`, `Std`, `Median`, `Min`, `Max`.
    Attributes are keys as well: `info["Return"]` is `info.Return`, and iterating gives all names.
    An environment that clips its reward or ends an episode at the loss of a life says so in two reserved fields of its
    info: `game_score`, the raw reward (a number, or None for none), is summed up in `GameScore` (unless a subclass sets
    `GameScore` in `__init__` and adds to it); `traj_done` false keeps the trajectory going. A number `is_success` or
    `success` in the info of the last step is `Success`, whose average is the success rate, unless a subclass has one.
    """

    # A slot, as all that is in `__dict__` is a key of the mapping.
    __slots__ = ("__dict__", "__weakref__", "_ended_at")
    _ended_at: tuple[int, int, int]
    _sums_score: bool | None = None  # whether GameScore is summed up here; known at the first score
    _takes_success: bool | None = None  # whether Success is set here; known at the first one

    def __init__(self, discount: float = 1.0) -> None:
        self.Length = 0
        self.Return = 0.0
        self.NonzeroRewards = 0
        self.DiscountedReturn = 0.0
        self._discount = discount
        self._cumulative_discount = 1.0

    def step(
        self, observation: Buffer, action: Buffer, reward: float, done: bool, agent_info: Buffer, env_info: Info
    ) -> None:
        """Take in one step of one environment.

        Arrays are valid during the call: copy what you keep. `TrajInfo` itself reads neither observation, action nor
        agent_info, and is given None for them.

        Args:
            observation: the observation before the step, on which the action was chosen, in row form.
            action: the action, in the space's row form.
            reward: as the agent sees it.
            done: whether the step ended the episode.
            agent_info: what the agent recorded with the action.
            env_info: the environment's info, whole; an `InfoDict` for a subclass.
        """
        self.Length += 1
        self.Return += reward
        self.NonzeroRewards += reward != 0
        self.DiscountedReturn += self._cumulative_discount * reward
        self._cumulative_discount *= self._discount
        if "game_score" in env_info:
            self._add_score(env_info["game_score"])
        if done:
            self._take_success(env_info)

    def _take_success(self, env_info: Info) -> None:
        found = (as_number(env_info[name]) for name in SUCCESS_KEYS if name in env_info)
        success = next((x for x in found if x is not None), None)
        if success is None:
            return
        if self._takes_success is None:
            self._takes_success = "Success" not in self.__dict__
        if self._takes_success:
            self.Success: float = success

    def _add_score(self, score: Buffer) -> None:
        if score is None:
            return
        if type(score) is not float:
            number = as_number(score)
            if number is None:
                raise TypeError(
                    "game_score in the info of an environment: expected one number, or None for no score, got "
                    f"{type(score).__name__} {score!r:.100}. It is the raw reward of the step, which TrajInfo sums in "
                    "GameScore. Give something else another name."
                )
            score = number
        if self._sums_score is None:
            # Subclasses written for rlpyt 0.1 have a GameScore of their own, and add to it in `step`.
            self._sums_score = "GameScore" not in self.__dict__
        if self._sums_score:
            self.GameScore: float = self.__dict__.get("GameScore", 0.0) + score

    @property
    def ended_at(self) -> tuple[int, int, int] | None:
        """Iteration, row of the batch and environment, counted over all replicas, in which the trajectory ended.

        A sampler of this library sets it; None where nobody has. It is no statistic, and no key.
        """
        try:
            return self._ended_at
        except AttributeError:
            return None

    @ended_at.setter
    def ended_at(self, place: tuple[int, int, int]) -> None:
        self._ended_at = place

    def terminate(self, observation: Buffer) -> TrajInfo:
        """Return the finished statistics; `observation` is the final one."""
        return self

    @property
    def _cur_discount(self) -> float:
        """Discount of the step at hand, by its name in rlpyt 0.1, which subclasses read and set."""
        return self._cumulative_discount

    @_cur_discount.setter
    def _cur_discount(self, value: float) -> None:
        self._cumulative_discount = value

    def statistics(self) -> dict[str, Any]:
        """Return the public attributes, which are logged."""
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_")}

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value

    def __delitem__(self, name: str) -> None:
        del self.__dict__[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dict__)

    def __len__(self) -> int:
        return len(self.__dict__)

    def __repr__(self) -> str:
        numbers = [
            f"{name}={x:.6g}" if isinstance(x, float) else f"{name}={x}" for name, x in self.statistics().items()
        ]
        return f"{type(self).__name__}({', '.join(numbers)})"

    # Two trajectories with the same numbers are two.
    __eq__ = object.__eq__
    __hash__ = object.__hash__


def as_number(value: Buffer) -> float | None:
    """Return a number, or an array or tensor of one element, as a float; None for anything else."""
    try:
        if not isinstance(value, str | bytes):
            return float(value.item() if isinstance(value, np.ndarray) else value)
    except (TypeError, ValueError, RuntimeError):
        pass
    return None


AtariTrajInfo = TrajInfo
"""The predecessor's name for statistics with `GameScore`, which `TrajInfo` sums up wherever info has `game_score`."""


def traj_info_maker(TrajInfoCls: Callable[..., TrajInfo], kwargs: Kwargs | None = None) -> Callable[[], TrajInfo]:
    """Return the function that makes the statistics of a new trajectory.

    Args:
        TrajInfoCls: what makes one.
        kwargs: its arguments, such as the discount. An argument that it does not take is set as an attribute with an
            underscore: a subclass may have an `__init__` without `discount`.

    Raises:
        TypeError: if it makes something else.
    """
    kwargs = dict(kwargs or {})
    parameters = inspect.signature(TrajInfoCls).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    taken = {key: value for key, value in kwargs.items() if takes_all or key in parameters}
    apart = {f"_{key}": value for key, value in kwargs.items() if key not in taken}

    if not isinstance(traj_info := TrajInfoCls(**taken), TrajInfo):
        raise TypeError(
            f"TrajInfoCls made {traj_info!r:.100} of type {type(traj_info).__name__}; expected an "
            "rlpyt.samplers.TrajInfo, whose attributes are keys, too. Derive the class from TrajInfo."
        )

    def make() -> TrajInfo:
        traj_info = TrajInfoCls(**taken)
        if apart:  # to update by nothing would take most of the time
            traj_info.update(apart)
        return traj_info

    return make

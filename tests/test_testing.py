"""The contracts of `rlpyt.testing`: parts of the library keep them, and parts with one fault each are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlpyt.agents import CatDqnAgent, DqnAgent, PgAgent, RecurrentCategoricalPgAgent, SacAgent
from rlpyt.algos import A2C, DQN, PPO, SAC
from rlpyt.models import MlpModel, PgModel, QModel, RecurrentCore
from rlpyt.replays import PrioritizedIndex, ReplayBuffer, RowStorage, Sequences, Transitions, UniformIndex
from rlpyt.samplers import AlternatingSampler, CpuSampler, GpuSampler, SerialSampler
from rlpyt.spaces import EnvSpaces
from rlpyt.testing import check_agent, check_algo, check_env, check_model, check_replay, check_sampler, random_rows
from rlpyt.utils.arrays import buffer_leaves
from tests.agents import agent_kinds
from tests.envs.env_kinds import Sampled
from tests.pairs import others_nightly
from tests.toy_envs import CountingEnv
from tests.vector_toy_envs import CountingVectorEnv

VECTOR = EnvSpaces(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4))
BOX = EnvSpaces(VECTOR.observation, spaces.Box(-2, 2, (2,), np.float32))


# ---- environments ----


class Faulty(Sampled):
    """Environment with one fault."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=None if self.fault == "unseeded" else 1 if self.fault == "constant" else seed)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        if self.fault == "endless":
            terminated = truncated = False
        return observation, reward, terminated, truncated, info


@pytest.mark.parametrize(
    ("fault", "options", "said"),
    [
        ("unseeded", {}, "of two plays with seed 0: got .*expected the same twice"),
        ("constant", {}, "seeds 0 and 1: got the same play; expected another play"),
        ("endless", {}, "episodes ended in 100 random steps: got 0; expected one; raise n_steps"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*two resets with seed")
def test_an_environment_with_a_fault_is_refused(fault: str, options: dict[str, Any], said: str):
    with pytest.raises(AssertionError, match=said):
        check_env(Faulty, {"fault": fault}, **options)


def test_what_an_environment_need_not_keep_can_be_left_out():
    check_env(Faulty, {"fault": "constant"}, varies=False)
    check_env(Faulty, {"fault": "endless"}, must_end=False)
    with pytest.warns(UserWarning, match="two resets"):
        check_env(Faulty, {"fault": "unseeded"}, repeats=False)


class Clock(Sampled):
    n_steps = 0

    def step(self, action: Any) -> Any:
        Clock.n_steps += 1
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, "clock": Clock.n_steps}


def test_fields_of_info_that_differ_from_run_to_run_are_named():
    with pytest.raises(AssertionError, match="of two plays with seed 0"):
        check_env(Clock)
    assert "clock" in check_env(Clock, ignored_info=["clock"]).info


def test_a_vector_environment_is_looked_at():
    assert check_env(CountingVectorEnv).spaces.action == CountingEnv().action_space


# ---- models ----


class Small(nn.Module):
    """Policy and value of one hidden layer."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.body = MlpModel(observation_space.shape[0], 8)
        self.policy, self.value = nn.Linear(8, int(action_space.n)), nn.Linear(8, 1)

    def forward(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        x = self.body(observation)
        return self.policy(x).float(), self.value(x).squeeze(-1).float()


class Flat(Small):
    def forward(self, *inputs: Any) -> Any:
        logits, value = super().forward(*inputs)
        return logits.flatten(0, -2), value.flatten()


class Mixing(Small):
    def forward(self, *inputs: Any) -> Any:
        logits, value = super().forward(*inputs)
        return logits - logits.mean(tuple(range(logits.dim() - 1))), value


class Writing(Small):
    def forward(self, observation: Any, *inputs: Any) -> Any:
        return super().forward(observation.clamp_(max=0.5), *inputs)


class Forgetful(Small):
    """Weights that are not in its state_dict."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__(observation_space, action_space)
        self.shift = torch.randn(())

    def forward(self, *inputs: Any) -> Any:
        logits, value = super().forward(*inputs)
        return logits, value + self.shift


class Recurrent(Small):
    """Recurrent, and right."""

    resets = True

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__(observation_space, action_space)
        self.core = RecurrentCore(8, 8, kind="gru")

    def forward(
        self, observation: Any, prev_action: Any, prev_reward: Any, state: Any = None, start: Any = None
    ) -> Any:
        x = self.body(observation)
        T, B = (1, *prev_reward.shape)[-2:]
        x, state = self.core(x.reshape(T, B, 8), state, start if self.resets else None)
        x = x.reshape(*prev_reward.shape, 8)
        return self.policy(x).float(), self.value(x).squeeze(-1).float(), state


class AcrossEpisodes(Recurrent):
    resets = False


@pytest.mark.parametrize(
    ("ModelCls", "said"),
    [
        (Flat, r"shape of an output: got \(12, 4\); expected \(3, 4\) first"),
        (Mixing, "expected the same, whatever other rows are in the batch"),
        (Writing, "inputs after the call.*expected the inputs unchanged"),
        (Forgetful, "a model that loaded its state_dict: .*expected the same outputs"),
        (AcrossEpisodes, "row 2 of an unroll.*the state is zero before rows where episode_start is True"),
    ],
)
def test_a_model_with_a_fault_is_refused(ModelCls: Any, said: str):
    with pytest.raises(AssertionError, match=said):
        check_model(ModelCls, VECTOR, recurrent=issubclass(ModelCls, Recurrent))


def test_models_without_a_fault_pass_and_the_stream_of_torch_stays():
    before = torch.get_rng_state()
    check_model(Small, VECTOR, output_shapes=[(4,), ()])
    check_model(Recurrent, VECTOR, recurrent=True)
    check_model(PgModel, BOX, {"recurrent": "lstm", "rnn_size": 8}, recurrent=True)
    check_model(QModel, VECTOR, {"noisy": True, "dueling": True}, output_shapes=[(4,)], leading_dims=[(), (3, 4)])
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(AssertionError, match=r"shapes of one row: got \[\(4,\), \(\)\]; expected \[\(5,\), \(\)\]"):
        check_model(Small, VECTOR, output_shapes=[(5,), ()])


# ---- replays ----

ROWS = random_rows(VECTOR, 60, 2)


def make_replay(index: Any = UniformIndex, reading: Any = None, Cls: Any = ReplayBuffer, seed: int = 0) -> Any:
    storage = RowStorage(ROWS[0, 0], 20, 2)
    return Cls(storage, index(np.random.default_rng(seed)), reading or Transitions(2), discount=0.9)


def test_random_rows_are_those_of_a_sampler():
    after_end = ROWS.terminated[:-1] | ROWS.truncated[:-1]
    assert 10 < after_end.sum() < 30
    assert np.array_equal(~ROWS.valid[1:], after_end)
    assert not ROWS.reward[~ROWS.valid].any()
    assert not (ROWS.terminated & ROWS.truncated).any()
    goes_on = ROWS.valid[:-1]
    assert np.array_equal(ROWS.prev_reward[1:], np.where(goes_on, ROWS.reward[:-1], 0))
    assert np.array_equal(ROWS.prev_action[1:], np.where(goes_on, ROWS.action[:-1], 0))
    assert not np.array_equal(random_rows(VECTOR, 60, 2, seed=1).reward, ROWS.reward)


@pytest.mark.parametrize("index", [UniformIndex, PrioritizedIndex])
@pytest.mark.parametrize("reading", [Transitions(3), Sequences(4, 0, 1, 0)], ids=["transitions", "sequences"])
def test_replays_keep_their_contract(index: Any, reading: Any):
    check_replay(lambda: make_replay(index, reading), ROWS)


class Lossy(ReplayBuffer):
    """Loads all but the random stream."""

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)
        self.index.rng.random()


class Final(ReplayBuffer):
    """Gives final observations as if they had been acted on."""

    def sample_batch(self, batch_size: int) -> Any:
        batch = super().sample_batch(batch_size)
        return batch._replace(agent_inputs=batch.target_inputs)


class Reusing(ReplayBuffer):
    """Gives every batch in the same memory."""

    memory: Any = None

    def sample_batch(self, batch_size: int) -> Any:
        batch = super().sample_batch(batch_size)
        self.memory = batch if self.memory is None else self.memory
        for old, new in zip(buffer_leaves(self.memory), buffer_leaves(batch), strict=True):
            old.copy_(new)
        return self.memory


@pytest.mark.parametrize(
    ("Cls", "said"),
    [
        (Lossy, "batches after state_dict went through a file.*expected the same as without loading"),
        (Final, "observation and action .* expected those of a valid row"),
        (Reusing, "a batch after later writes: .* in memory of its own"),
    ],
)
def test_a_replay_with_a_fault_is_refused(Cls: Any, said: str):
    with pytest.raises(AssertionError, match=said):
        check_replay(lambda: make_replay(Cls=Cls), ROWS)


def test_a_replay_of_another_seed_at_every_call_is_refused():
    seeds = iter(range(10))
    with pytest.raises(AssertionError, match="batches of two replays with the same seed"):
        check_replay(lambda: make_replay(seed=next(seeds)), ROWS)


# ---- agents ----


@pytest.mark.parametrize("kind", others_nightly(agent_kinds.ONE_OF_A_KIND, agent_kinds.ONE_OF_A_KIND[::3]))
def test_agents_keep_their_contract(kind: str):
    AgentCls, model_kwargs, *_ = agent_kinds.KINDS[kind]

    def tell(agent: Any) -> None:
        if issubclass(AgentCls, CatDqnAgent):
            agent.give_V_min_max(-1.0, 1.0)

    check_agent(lambda: AgentCls(model_kwargs=model_kwargs), agent_kinds.spaces_of(kind), prepare=tell)


class OutOfBounds(PgAgent):
    def act(self, output: Any, actor: Any) -> Any:
        return super().act(output, actor) + 7


class GlobalNoise(PgAgent):
    """Draws from a stream that no seed reaches."""

    rng = np.random.default_rng(0)

    def act(self, output: Any, actor: Any) -> Any:
        return torch.from_numpy(self.rng.integers(4, size=len(actor.env_ranks)))


class Turning(PgAgent):
    """Takes the actions in turn, by a count that no state has."""

    count = 0

    def act(self, output: Any, actor: Any) -> Any:
        vars(actor)["count"] = vars(actor).get("count", 0) + 1
        return torch.full_like(super().act(output, actor), actor.count % 4)


class StateOfNobody(PgAgent):
    def load_state_dict(self, state_dict: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("AgentCls", "said"),
    [
        (OutOfBounds, r"step: an action: got .*; expected one of Discrete\(4\)"),
        (GlobalNoise, "steps of two agents with seed 0"),
        (Turning, "steps of an actor that loaded a state: .*expected those of the saved one"),
        (StateOfNobody, "deterministic actions after state_dict went through a file"),
    ],
)
def test_an_agent_with_a_fault_is_refused(AgentCls: Any, said: str):
    with pytest.raises(AssertionError, match=said):
        check_agent(AgentCls, VECTOR)


# ---- samplers and algorithms ----


@pytest.mark.parametrize(
    ("SamplerCls", "options"),
    [
        (SerialSampler, {"n_parts": 2, "max_decorrelation_steps": 4}),
        (SerialSampler, {"mid_batch_reset": False}),
        (CpuSampler, {"n_workers": 2, "eval_n_envs": 2, "eval_max_trajectories": 3}),
        (GpuSampler, {"n_workers": 1, "max_decorrelation_steps": 0, "start_method": "here"}),
        (AlternatingSampler, {"n_workers": 2, "max_decorrelation_steps": 0, "start_method": "here"}),
    ],
)
def test_samplers_keep_their_contract(SamplerCls: Any, options: dict[str, Any]):
    check_sampler(SamplerCls, CountingEnv, sampler_kwargs=options)


class Halved(SerialSampler):
    def obtain_samples(self, itr: int) -> Any:
        samples, traj_infos = super().obtain_samples(itr)
        samples.env.reward.mul_(0.5)
        return samples, traj_infos


class AllValid(SerialSampler):
    def obtain_samples(self, itr: int) -> Any:
        samples, traj_infos = super().obtain_samples(itr)
        samples.env.valid.fill_(True)
        return samples, traj_infos


class Short(SerialSampler):
    def obtain_samples(self, itr: int) -> Any:
        samples, traj_infos = super().obtain_samples(itr)
        return samples[:3], traj_infos


@pytest.mark.parametrize(
    ("SamplerCls", "said"),
    [
        (Halved, "env.reward: got .*expected that of SerialSampler"),
        (AllValid, "row after the end of an episode: got valid=True"),
        (Short, r"leading dimensions: got \(3, 4\); expected \(5, 4\)"),
    ],
)
def test_a_sampler_with_a_fault_is_refused(SamplerCls: Any, said: str):
    with pytest.raises(AssertionError, match=said):
        check_sampler(SamplerCls, CountingEnv)


REPLAY: dict[str, Any] = dict(min_steps_learn=40, batch_size=8, replay_size=500, replay_ratio=2)
SIZES: dict[str, Any] = dict(model_kwargs={"hidden_sizes": 8})


@pytest.mark.parametrize(
    ("make_algo", "make_agent", "EnvCls", "env_kwargs"),
    [
        pytest.param(A2C, PgAgent, CountingEnv, {}, marks=pytest.mark.nightly),
        (lambda: PPO(minibatches=2, epochs=2), RecurrentCategoricalPgAgent, CountingEnv, {}),
        pytest.param(lambda: DQN(**REPLAY), lambda: DqnAgent(**SIZES), CountingEnv, {}, marks=pytest.mark.nightly),
        (lambda: SAC(**REPLAY), lambda: SacAgent(**SIZES), Sampled, {"action_space": BOX.action}),
    ],
    ids=["A2C", "recurrent PPO", "DQN", "SAC"],
)
def test_algorithms_keep_their_contract(make_algo: Any, make_agent: Any, EnvCls: Any, env_kwargs: dict[str, Any]):
    check_algo(make_algo, make_agent, EnvCls, env_kwargs)


class Idle(A2C):
    def optimize_agent(self, itr: int, samples: Any) -> Any:
        return {}


class Random(A2C):
    rng = np.random.default_rng(0)

    def optimize_agent(self, itr: int, samples: Any) -> Any:
        metrics = super().optimize_agent(itr, samples)
        with torch.no_grad():
            next(iter(self.agent.parameters())).add_(self.rng.normal())
        return metrics


@pytest.mark.parametrize(
    ("make_algo", "said"),
    [(Idle, "updates in 10 iterations: got 0"), (Random, "weights of two runs with seed 0")],
)
def test_an_algorithm_with_a_fault_is_refused(make_algo: Any, said: str):
    with pytest.raises(AssertionError, match=said):
        check_algo(make_algo, PgAgent, CountingEnv)

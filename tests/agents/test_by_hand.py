"""Agents that are loaded and stepped by hand, one observation at a time, as scripts that render or deploy do."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import CatDqnAgent, DqnAgent, PgAgent
from rlpyt.agents.by_hand import rows_of
from rlpyt.envs import make_env
from rlpyt.samplers import evaluate
from rlpyt.spaces import EnvSpaces, null_value, random_value, to_env
from rlpyt.utils.arrays import buffer_func, buffer_leaves
from tests.agents.agent_kinds import KINDS, make_agent, random_inputs, spaces_of
from tests.toy_envs import BareEnv, OddArraysEnv, OldBareEnv


class OwnStep(PgAgent):
    def step(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        return super().step(observation, prev_action, prev_reward)


ONE_OF_A_KIND = list({AgentCls: kind for kind, (AgentCls, *_) in KINDS.items()}.values())
SPACES = EnvSpaces(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4))
SMALL = {"hidden_sizes": 8}


@pytest.mark.parametrize("kind", ONE_OF_A_KIND)
def test_one_observation_gives_one_action_and_a_batch_a_batch(kind: str) -> None:
    agent, env_spaces = make_agent(kind), spaces_of(kind)
    null, to_action = np.asarray(null_value(env_spaces.action)), to_env(env_spaces.action)
    rng = np.random.default_rng(0)
    for set_mode in (agent.eval_mode, agent.sample_mode):
        set_mode(0)
        prev_action: Any = None
        for _ in range(3):
            action, agent_info = agent.step(random_value(env_spaces.observation, rng), prev_action, 0.5)
            assert action.shape == null.shape
            assert env_spaces.action.contains(to_action(action.numpy()))
            prev_action = action
        agent.reset()
        batch = agent.step(*random_inputs(env_spaces, 2))
        assert batch.action.shape == (2, *null.shape)
        leaves = zip(buffer_leaves(agent_info), buffer_leaves(batch.agent_info), strict=True)
        assert all(many.shape == (2, *one.shape) for one, many in leaves)


def test_a_batch_has_noise_for_every_row() -> None:
    agent = PgAgent(model_kwargs=SMALL)
    agent.initialize(SPACES)
    agent.sample_mode(0)
    row = torch.zeros(64, 3), torch.zeros(64, dtype=torch.int64), torch.zeros(64)
    assert len(set(agent.step(*row).action.tolist())) == 4
    assert agent.value(torch.zeros(3), None, None).shape == ()


class Counting(gymnasium.Env[Any, Any]):
    """Rewards 1, 2, 3; an episode has as many steps as its seed says."""

    observation_space, action_space = SPACES

    def __init__(self) -> None:
        self.actions: list[int] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        assert seed is not None
        self.length, self.t = seed, 0
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.actions.append(int(action))
        self.t += 1
        return np.full(3, self.t / 9, np.float32), self.t, False, self.t == self.length, {"game_score": 2.0}


@pytest.mark.parametrize("recurrent", [False, True])
def test_play_runs_whole_episodes(recurrent: bool) -> None:
    torch.manual_seed(0)
    agent = PgAgent(recurrent=recurrent, model_kwargs={**SMALL, **({"rnn_size": 8} if recurrent else {})})
    agent.initialize(SPACES)
    env = Counting()
    seen = env.actions
    infos = agent.play(env, 3, seed=2)
    assert [(info.Return, info.Length, info.GameScore) for info in infos] == [(3, 2, 4.0), (6, 3, 6.0), (10, 4, 8.0)]
    # every episode begins afresh
    assert seen[:2] == seen[2:4] == seen[5:7]
    first = list(seen)
    agent.play(env, 3, seed=2)
    assert seen == 2 * first


class Scaled(gymnasium.Env[Any, Any]):
    """Rewards are actions, whose bounds are not those of the policy."""

    observation_space, action_space = spaces.Box(-1.0, 1.0, (3,)), spaces.Box(np.float32(-0.5), np.float32(3.5), (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.t += 1
        return np.full(3, self.t / 9, np.float32), self.t * float(action[0]), False, self.t == 9, {}


def test_play_is_an_evaluation() -> None:
    torch.manual_seed(0)
    agent = PgAgent(recurrent=True, model_kwargs=dict(**SMALL, rnn_size=8))
    agent.initialize(EnvSpaces(Scaled.observation_space, Scaled.action_space))
    (info,) = agent.play(Scaled())
    (evaluated,) = evaluate(agent, Scaled, {}, n_trajectories=1, deterministic=True).traj_infos
    assert info.Return == pytest.approx(evaluated.Return, rel=1e-6)
    sampled = agent.play(Scaled(), 2, deterministic=False)
    assert len({round(x.Return, 3) for x in (info, *sampled)}) == 3


class TwoLives(Counting):
    """Ends after two steps in each of two lives; a reset without a seed begins the second one."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.lives = 1 if seed is None else 2
        return super().reset(seed=2)

    def step(self, action: Any) -> Any:
        *step, info = super().step(action)
        return *step, {**info, "traj_done": self.lives == 1 and self.t == self.length}


@pytest.mark.parametrize("recurrent", [False, True])
def test_an_episode_goes_on_after_a_lost_life_as_in_an_evaluation(recurrent: bool) -> None:
    torch.manual_seed(0)
    agent = PgAgent(recurrent=recurrent, model_kwargs={**SMALL, **({"rnn_size": 8} if recurrent else {})})
    agent.initialize(SPACES)
    env = TwoLives()
    (info,) = agent.play(env)
    (evaluated,) = evaluate(agent, TwoLives, {}, n_trajectories=1, deterministic=True).traj_infos
    assert (info.Return, info.Length) == (evaluated.Return, evaluated.Length) == (6, 4)
    assert env.actions[:2] == env.actions[2:]  # the agent begins afresh


@pytest.mark.parametrize(
    ("EnvCls", "env_kwargs"),
    [(BareEnv, {}), (OldBareEnv, {}), *[(OddArraysEnv, {"kind": k}) for k in OddArraysEnv.KINDS]],
)
def test_play_takes_what_a_sampler_takes(EnvCls: Any, env_kwargs: dict[str, Any]) -> None:
    agent = PgAgent(model_kwargs=SMALL)
    agent.initialize(EnvSpaces(BareEnv.observation_space, BareEnv.action_space))
    infos = [agent.play(EnvCls(**env_kwargs))[0], agent.play(make_env(EnvCls, env_kwargs))[0]]
    assert [(info.Return, info.Length) for info in infos] == [(3, 3)] * 2


def test_play_refuses_other_spaces_before_a_step() -> None:
    agent = PgAgent(model_kwargs=SMALL)
    agent.initialize(SPACES)
    with pytest.raises(ValueError, match=r"Playing in BareEnv: its spaces are .*; expected those of the agent"):
        agent.play(BareEnv())
    with pytest.raises(TypeError, match="is a vector environment; expected one environment"):
        agent.play(gymnasium.make_vec("CartPole-v1", 2))


@pytest.mark.parametrize("kind", OddArraysEnv.KINDS)
def test_a_row_may_be_any_array(kind: str) -> None:
    agent = PgAgent(model_kwargs=SMALL)
    agent.initialize(SPACES)
    batch = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], np.float32)
    to_odd = OddArraysEnv.KINDS[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given in (batch[0], batch):
            assert torch.allclose(agent.value(to_odd(given), None, None), agent.value(given.copy(), None, None))


def test_a_recurrent_state_goes_on_until_it_is_reset() -> None:
    agent = make_agent(next(kind for kind in KINDS if kind.startswith("RecurrentGaussian")))
    agent.eval_mode(0)
    observation = random_value(agent.env_spaces.observation, np.random.default_rng(0))

    def mean() -> Any:
        return agent.step(observation, None, None).agent_info.dist_info.mean

    first, second = mean(), mean()
    assert not torch.equal(first, second)
    agent.reset()
    assert torch.equal(mean(), first)
    state = buffer_func(agent.rnn_state, torch.clone)
    following = mean()
    assert torch.equal(following, second)
    agent.rnn_state = state
    assert torch.equal(mean(), second)


def test_a_batch_in_evaluation_leaves_training_as_it_was() -> None:
    agent = make_agent(next(kind for kind in KINDS if kind.startswith("RecurrentGaussian")))
    rows = random_inputs(agent.env_spaces, 2)
    agent.eval_mode(0)
    first = agent.step(*rows).agent_info.dist_info.mean
    agent.sample_mode(0)
    assert torch.equal(agent.step(*rows).agent_info.dist_info.mean, first), "it began with the evaluation's state"


def test_sample_mode_goes_on_with_the_rows_and_states_of_training() -> None:
    agent = make_agent(next(kind for kind in KINDS if kind.startswith("RecurrentGaussian")))
    rows = random_inputs(agent.env_spaces, 2)

    def mean(itr: int) -> Any:
        agent.sample_mode(itr)
        return agent.step(*rows).agent_info.dist_info.mean

    first, second = mean(0), mean(1)
    assert not torch.equal(second, first)
    agent.reset()
    assert torch.equal(mean(2), first)
    agent.eval_mode(3)
    agent.step(*rows)
    assert torch.equal(mean(3), second)


def test_an_agent_that_is_initialised_again_begins_anew() -> None:
    agent = make_agent(next(kind for kind in KINDS if kind.startswith("RecurrentGaussian")))
    for set_mode in (agent.sample_mode, agent.eval_mode):
        set_mode(0)
        agent.step(*random_inputs(agent.env_spaces, 2))
        agent.initialize(agent.env_spaces)
        assert agent.mode is None
        set_mode(0)
        states = agent.step(*random_inputs(agent.env_spaces, 2)).agent_info.prev_rnn_state
        assert not any(leaf.any() for leaf in buffer_leaves(states))


def test_another_number_of_rows_leaves_an_evaluation_deterministic() -> None:
    agent = PgAgent(model_kwargs=SMALL)
    agent.initialize(SPACES)
    agent.eval_mode(7, deterministic=True)
    for B in (1, 64, 3):
        agent.step(torch.zeros(B, 3), torch.zeros(B, dtype=torch.int64), torch.zeros(B))
        assert (agent.deterministic, agent.by_hand.actor.itr, len(agent.by_hand.actor.env_ranks)) == (True, 7, B)


def test_what_is_left_out_is_null_and_dictionaries_are_read_by_their_keys() -> None:
    parts: dict[str, spaces.Space[Any]] = {
        "a": spaces.Box(-1, 1, (2,), np.float32),
        "b": spaces.Box(-1, 1, (2,), np.float32),
    }
    env_spaces = EnvSpaces(spaces.Dict(parts), spaces.Box(2, 6, (1,), np.float32))
    a, b = np.zeros(2), np.ones(2)
    for observation in ({"a": a, "b": b}, {"b": b, "a": a}):
        (rows, prev_action, prev_reward), is_one = rows_of(env_spaces, observation, None, None)
        assert is_one
        assert (rows.a.tolist(), rows.b.tolist()) == ([[0, 0]], [[1, 1]])
        assert (prev_action.tolist(), prev_reward.tolist()) == ([[4.0]], [0.0])


def test_noise_follows_the_global_seed_and_differs_from_episode_to_episode() -> None:
    agent = PgAgent(model_kwargs=SMALL)
    agent.initialize(SPACES)

    def episode() -> list[int]:
        agent.eval_mode(0)
        return [int(agent.step(torch.zeros(3), 0, 0.0).action) for _ in range(20)]

    torch.manual_seed(1)
    first, second = episode(), episode()
    assert first != second
    torch.manual_seed(1)
    assert episode() == first


@pytest.mark.parametrize("kind", ONE_OF_A_KIND)
def test_all_of_an_agent_s_state_can_be_given_to_start_from(kind: str) -> None:
    old = make_agent(kind, seed=1)
    state = copy.deepcopy(old.state_dict())
    new = make_agent(kind, seed=2, initial_model_state_dict=state)
    for key in ("model", "q_model", "V_range"):
        if key in state:
            values = new.state_dict()[key]
            pairs = (
                zip(values, state[key], strict=True)
                if key == "V_range"
                else [(values[n], state[key][n]) for n in values]
            )
            assert all(np.array_equal(x, y) for x, y in pairs)


def test_of_a_given_state_the_range_of_the_atoms_is_taken() -> None:
    kwargs: dict[str, Any] = dict(model_kwargs=SMALL, n_atoms=5, eps_eval=0.0)
    old = CatDqnAgent(**kwargs)
    old.initialize(SPACES)
    old.give_V_min_max(-1.0, 2.0)
    new = CatDqnAgent(initial_model_state_dict=old.state_dict(), **kwargs)
    new.initialize(SPACES)
    assert torch.equal(new.z, old.z)
    weights_alone = CatDqnAgent(initial_model_state_dict=old.state_dict()["model"], **kwargs)
    weights_alone.initialize(SPACES)
    with pytest.raises(RuntimeError, match="range of its atoms is not known"):
        weights_alone.eval_mode(0)


def test_by_hand_a_q_learner_evaluates_with_its_own_epsilon_at_any_iteration() -> None:
    agent = DqnAgent(model_kwargs=SMALL, eps_eval=0.0)
    agent.initialize(SPACES)
    agent.eval_mode(0)
    rows = torch.rand(50, 3), torch.zeros(50, dtype=torch.int64), torch.zeros(50)
    assert torch.equal(agent.step(*rows).action, agent(*rows).argmax(-1))
    actor = agent.actor([0], 1, seed=0, evaluation=True)
    actor.begin(0)
    assert actor.exploration == 1.0


def test_the_mode_can_be_asked() -> None:
    agent = PgAgent(model_kwargs=SMALL)
    assert agent.mode is None
    agent.initialize(SPACES)
    modes: list[str | None] = []
    for set_mode in (agent.sample_mode, agent.eval_mode, agent.train_mode):
        set_mode(0)
        modes.append(agent.mode)
    assert modes == ["sample", "eval", "train"]


def test_what_cannot_be_a_row_is_refused() -> None:
    agent = PgAgent(model_kwargs=SMALL)
    with pytest.raises(RuntimeError, match="is not initialised"):
        agent.eval_mode(0)
    agent.initialize(SPACES)
    with pytest.raises(ValueError, match=r"prev_action has the shape \[\]; expected \[2\]"):
        agent.step(np.zeros((2, 3)), 0, None)
    with pytest.raises(ValueError, match=r"observation has the shape \[4\]; expected \[3\]"):
        agent.step(np.zeros(4), 0, 0.0)
    for value in (None, ["1", "2", "3"], {"a": 1}, [[1.0], [1.0, 2.0]]):
        with pytest.raises(ValueError, match=r"observation is a .*; expected one array"):
            agent.step(value, 0, 0.0)


def test_the_first_step_needs_no_call_and_acts_as_in_evaluation() -> None:
    agent = DqnAgent(model_kwargs=SMALL, eps_eval=0.0)
    with pytest.raises(RuntimeError, match="is not initialised"):
        agent.step(np.zeros(3), 0, 0.0)
    agent.initialize(SPACES)
    assert not agent.deterministic
    rows = torch.rand(50, 3), torch.zeros(50, dtype=torch.int64), torch.zeros(50)
    assert torch.equal(agent.step(*rows).action, agent(*rows).argmax(-1))
    assert agent.mode == "eval"


@pytest.mark.parametrize("AgentCls", [PgAgent, OwnStep])
def test_acting_by_hand_and_the_actors_of_a_sampler_do_not_meet(AgentCls: Any) -> None:
    agent = AgentCls(model_kwargs=SMALL)
    agent.initialize(SPACES)
    rows = torch.zeros(3, 3), torch.zeros(3, dtype=torch.int64), torch.zeros(3)

    def sampled(by_hand: bool) -> list[torch.Tensor]:
        actor, found = agent.actor(range(3), 3, seed=0), []
        for itr in range(3):
            actor.begin(itr)
            found += [actor.step(*rows).action, actor.value(*rows)]
            if by_hand:
                (agent.sample_mode if itr else agent.eval_mode)(itr)
                assert agent.step(torch.zeros(3), 0, 0.0).action.shape == ()
        return found

    state = torch.random.get_rng_state()
    expected = sampled(by_hand=False)
    assert torch.equal(torch.random.get_rng_state(), state), "a sampler's actors draw from streams of their own"
    assert all(map(torch.equal, sampled(by_hand=True), expected))


def test_what_an_agent_is_given_by_mistake() -> None:
    agent = PgAgent(model_kwargs=SMALL)
    env: Any = gymnasium.make("CartPole-v1")
    with pytest.raises(TypeError, match=r"initialize was given <TimeLimit.*; expected the spaces .* Write agent"):
        agent.initialize(env)
    pair: Any = (env.observation_space, env.action_space)
    agent.initialize(pair)
    agent.eval_mode(0)
    with pytest.raises(ValueError, match=r"observation is a tuple, .*; expected one array. Of what env.reset"):
        agent.step(env.reset(seed=0), None, None)
    snapshot = {"itr": 0, "agent_state_dict": agent.state_dict()}
    said = r"was given a snapshot, with 'itr', 'agent_state_dict'; .* Give snapshot\[\"agent_state_dict\"\]"
    with pytest.raises(ValueError, match=said):
        agent.load_state_dict(snapshot)
    with pytest.raises(ValueError, match=said):
        PgAgent(model_kwargs=SMALL, initial_model_state_dict=snapshot).initialize(pair)

    class Forgets(PgAgent):
        def make_distribution(self, env_spaces: Any) -> Any:
            super().make_distribution(env_spaces)

    with pytest.raises(TypeError, match=r"Forgets.make_distribution returned None; expected a distribution"):
        Forgets().initialize(SPACES)

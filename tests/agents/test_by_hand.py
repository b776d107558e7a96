"""Agents that are loaded and stepped by hand, one observation at a time, as scripts that render or deploy do."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import DqnAgent, PgAgent
from rlpyt.agents.by_hand import rows_of
from rlpyt.envs import make_env
from rlpyt.samplers import TrajInfo, evaluate
from rlpyt.spaces import EnvSpaces, null_value, random_value, to_env
from rlpyt.utils.arrays import buffer_func, buffer_leaves
from tests.agents.agent_kinds import KINDS, ONE_OF_A_KIND, make_agent, random_inputs, spaces_of
from tests.toy_envs import BareEnv, OddArraysEnv, OldBareEnv


class OwnStep(PgAgent):
    def step(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        return super().step(observation, prev_action, prev_reward)


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
    agent.play(env, 3, seed=2, deterministic=False)
    assert seen[2 * len(first) :] != first


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


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_previous_actions_of_integers_are_those_of_rows(dtype: Any) -> None:
    class Sums(gymnasium.Env[Any, Any]):
        observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Box(0, 4, (2,), dtype)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.t, self.actions = 0, list[Any]()
            return np.ones(2, np.float32), {}

        def step(self, action: Any) -> Any:
            self.t += 1
            return np.full(2, np.cos(self.t), np.float32), float(action.sum()), False, self.t == 8, {}

    class Acts(TrajInfo):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self._acts = list[Any]()

        def step(self, observation: Any, action: Any, *rest: Any) -> None:
            super().step(observation, action, *rest)
            self._acts.append(np.array(action))

    torch.manual_seed(0)
    agent = PgAgent(recurrent="gru", model_kwargs=dict(orthogonal_init=False, rnn_size=16))
    agent.initialize(make_env(Sums, {}).spaces)
    of_sampler: Any = evaluate(agent, Sums, n_trajectories=1, deterministic=True, TrajInfoCls=Acts).traj_infos[0]
    agent.eval_mode(1, deterministic=True)
    env, prev_action, prev_reward = make_env(Sums, {}), None, None
    observation, _ = env.reset(0)
    for expected in of_sampler._acts:
        prev_action = agent.step(observation, prev_action, prev_reward).action
        np.testing.assert_array_equal(prev_action.numpy(), expected)
        observation, prev_reward, *_ = env.step(prev_action.numpy())


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
    state = copy.deepcopy(make_agent(kind, seed=1).state_dict())
    new = make_agent(kind, seed=2, initial_model_state_dict=state).state_dict()
    for key in state.keys() & {"model", "q_model"}:
        assert all(torch.equal(new[key][name], x) for name, x in state[key].items())
    assert new.get("V_range") == state.get("V_range")
    if "V_range" in state:
        AgentCls, model_kwargs, *_ = KINDS[kind]
        weights_alone = AgentCls(model_kwargs=model_kwargs, initial_model_state_dict=state["model"])
        weights_alone.initialize(spaces_of(kind))
        with pytest.raises(RuntimeError, match="range of its atoms is not known"):
            weights_alone.eval_mode(0)


def test_the_first_step_needs_no_call_and_acts_as_in_evaluation_at_any_iteration() -> None:
    agent: Any = DqnAgent(model_kwargs=SMALL, eps_eval=0.0)
    modes: list[Any] = [agent.mode]
    agent.initialize(SPACES)
    rows = torch.rand(50, 3), torch.zeros(50, dtype=torch.int64), torch.zeros(50)
    assert torch.equal(agent.step(*rows).action, agent(*rows).argmax(-1))
    assert [*modes, agent.mode] == [None, "eval"]
    actor = agent.actor([0], 1, seed=0, evaluation=True)
    actor.begin(0)
    assert actor.exploration == 1.0, "that of a sampler explores before the first iteration"
    pg_agent = PgAgent(model_kwargs=SMALL)
    pg_agent.initialize(SPACES)
    pg_agent.eval_mode(7, deterministic=True)
    for B in (1, 64, 3):  # another number of rows leaves the evaluation what it is
        pg_agent.step(torch.zeros(B, 3), torch.zeros(B, dtype=torch.int64), torch.zeros(B))
        assert (pg_agent.deterministic, pg_agent.by_hand.actor.itr) == (True, 7)
    pg_agent.sample_mode(0)
    assert pg_agent.mode == "sample"
    drawn = pg_agent.step(torch.zeros(64, 3), torch.zeros(64, dtype=torch.int64), torch.zeros(64)).action
    assert len(set(drawn.tolist())) == 4, "a batch has noise for every row"


class Forgets(PgAgent):
    def make_distribution(self, env_spaces: Any) -> Any:
        super().make_distribution(env_spaces)


CARTPOLE: Any = gymnasium.make("CartPole-v1")
SNAPSHOT: dict[str, Any] = {"itr": 0, "agent_state_dict": {}}
A_SNAPSHOT = r"was given a snapshot, with 'itr', 'agent_state_dict'; .* Give snapshot\[\"agent_state_dict\"\]"
NO_ARRAY = "observation is a .*; expected one array"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda agent: PgAgent().eval_mode(0), "is not initialised"),
        (lambda agent: PgAgent().step(np.zeros(3), 0, 0.0), "is not initialised"),
        (lambda agent: agent.step(np.zeros((2, 3)), 0, None), r"prev_action has the shape \[\]; expected \[2\]"),
        (lambda agent: agent.step(np.zeros(4), 0, 0.0), r"observation has the shape \[4\]; expected \[3\]"),
        (lambda agent: agent.step(None, 0, 0.0), NO_ARRAY),
        (lambda agent: agent.step(["1", "2", "3"], 0, 0.0), NO_ARRAY),
        (lambda agent: agent.step({"a": 1}, 0, 0.0), NO_ARRAY),
        (lambda agent: agent.step([[1.0], [1.0, 2.0]], 0, 0.0), NO_ARRAY),
        (lambda agent: agent.step(CARTPOLE.reset(seed=0), None, None), "is a tuple, .* one array. Of what env.reset"),
        (lambda agent: agent.play(BareEnv()), "Playing in BareEnv: its spaces are .*; expected those of the agent"),
        (lambda agent: agent.play(gymnasium.make_vec("CartPole-v1", 2)), "is a vector environment; expected one env"),
        (lambda agent: PgAgent().initialize(CARTPOLE), "was given <TimeLimit.*; expected the spaces .* Write agent"),
        (lambda agent: agent.load_state_dict(SNAPSHOT), A_SNAPSHOT),
        (lambda agent: PgAgent(initial_model_state_dict=SNAPSHOT).initialize(SPACES), A_SNAPSHOT),
        (lambda agent: Forgets().initialize(SPACES), "Forgets.make_distribution returned None; expected a distribut"),
    ],
)
def test_what_an_agent_is_given_by_mistake(call: Any, said: str) -> None:
    agent = PgAgent(model_kwargs=SMALL)
    agent.initialize((SPACES.observation, SPACES.action))  # type: ignore[arg-type]
    with pytest.raises((ValueError, TypeError, RuntimeError), match=said):
        call(agent)


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

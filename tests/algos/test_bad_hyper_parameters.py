"""Hyper-parameters that cannot be meant are refused before anything is started, with what came and how to mend it."""

from __future__ import annotations

import math
import warnings
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents import (
    CatDqnAgent,
    CategoricalPgAgent,
    DdpgAgent,
    DiscreteSacAgent,
    DqnAgent,
    IqnAgent,
    PqnAgent,
    R2d1Agent,
    RecurrentCatDqnAgent,
    RecurrentCategoricalPgAgent,
    RecurrentQrDqnAgent,
    RecurrentSacAgent,
    SacAgent,
    Td3Agent,
)
from rlpyt.algos import (
    A2C,
    DDPG,
    DQN,
    IQN,
    PPO,
    PQN,
    QRDQN,
    R2D1,
    SAC,
    TD3,
    CategoricalDQN,
    RandomShift,
    VTrace,
    replay_settings,
)
from rlpyt.core import hyper_parameters, rows_per_update
from rlpyt.functional import Linear
from rlpyt.replays import Transitions
from tests.algos.small_problems import RandomEnv, build, learn_from, optimize, set_up


@pytest.mark.parametrize(
    ("AlgoCls", "name", "close"),
    [
        (PPO, "clip_range", r"ratio_clip\?"),
        (DQN, "gamma", "discount"),
        (SAC, "tau", "target_update_tau"),
        (SAC, "learning_starts", "min_steps_learn"),
    ],
)
def test_an_unknown_name_is_answered_with_the_close_ones(AlgoCls, name, close):
    with pytest.raises(TypeError, match=f"{AlgoCls.__name__} has no hyper-parameter '{name}'. Did you mean .*{close}"):
        AlgoCls(**{name: 1})


ACTED: dict[str, Any] = dict(prioritized_replay=True, input_priorities=True)
OUT_OF_RANGE = [
    (A2C, dict(discount=1.01), r"discount is 1.01; expected a number in \[0, 1\]"),
    (A2C, dict(discount=Linear(1.2, 0.9)), r"discount is Linear\(start=1.2.*; expected a number in \[0, 1\]"),
    (A2C, dict(gae_lambda=2), r"gae_lambda is 2; expected a number in \[0, 1\]"),
    (VTrace, dict(rho_bar=0), r"rho_bar is 0; expected above 0 .*inf"),
    (VTrace, dict(c_bar=-0.5), r"c_bar is -0.5; expected at least 0 .*inf"),
    (A2C, dict(learning_rate=math.nan), "learning_rate: .*nan.*expected"),
    (A2C, dict(learning_rate="lin_-1e-3"), "learning_rate is 'lin_-1e-3'; expected"),
    (A2C, dict(learning_rate=lambda step: math.nan), "learning_rate is <function.*; expected a number"),
    (A2C, dict(clip_grad_norm=0), "clip_grad_norm is 0; expected above 0 .*inf"),
    (PPO, dict(ratio_clip=0.0), "ratio_clip is 0.0; expected above 0"),
    (PPO, dict(value_clip=-0.2), "value_clip is -0.2; expected above 0 .None for none"),
    (PPO, dict(target_kl=0), "target_kl is 0; expected above 0 .None for none"),
    (PPO, dict(minibatches=2.5), "minibatches is 2.5; expected a whole number from 1"),
    (PQN, dict(q_lambda=1.5), r"q_lambda is 1.5; expected a number in \[0, 1\]"),
    (PQN, dict(reward_scale=0.0), "reward_scale is 0.0; expected above 0"),
    (PPO, dict(epochs=math.inf), "epochs is inf; expected a whole number from 1"),
    (DQN, dict(batch_size=-32), "batch_size is -32; expected a whole number from 1"),
    (DQN, dict(replay_size=0), "replay_size is 0; expected a whole number from 1"),
    (DQN, dict(min_steps_learn=-1), "min_steps_learn is -1; expected a whole number from 0"),
    (DQN, dict(n_step_return=0), "n_step_return is 0; expected a whole number from 1"),
    (DQN, dict(target_update_interval=0), "target_update_interval is 0; expected a whole number from 1"),
    (DQN, dict(target_update_tau=0.0), r"target_update_tau is 0.0; expected a number in \(0, 1\]"),
    (DQN, dict(replay_ratio=0), "replay_ratio is 0; expected above 0"),
    (DQN, dict(delta_clip=0.0), "delta_clip is 0.0; expected above 0 .None for the square"),
    (DQN, dict(eps_steps=0), "eps_steps is 0; expected at least 1 step"),
    (DQN, dict(value_scale_eps=-0.1), "value_scale_eps is -0.1; expected from 0 .None for no scaling"),
    (DQN, dict(pri_alpha=-0.1), "pri_alpha is -0.1; expected a number from 0"),
    (DQN, dict(pri_beta_init=1.1), r"pri_beta_init is 1.1; expected a number in \[0, 1\]"),
    (DQN, dict(pri_beta_steps=0), "pri_beta_steps is 0; expected at least 1 step"),
    (DQN, dict(frame_stack=0), "frame_stack is 0; expected a whole number from 1"),
    (R2D1, dict(pri_eta=-0.1), r"pri_eta is -0.1; expected a number in \[0, 1\]"),
    (R2D1, dict(batch_T=0), "batch_T is 0; expected a whole number from 1"),
    (R2D1, dict(batch_B=2.5), "batch_B is 2.5; expected a whole number from 1"),
    (R2D1, dict(warmup_T=-1), "warmup_T is -1; expected a whole number from 0"),
    (R2D1, dict(store_rnn_state_interval=-1), "store_rnn_state_interval is -1; expected a whole number from 0"),
    (SAC, dict(q_of_policy="max"), "q_of_policy is 'max'; expected one of"),
    (SAC, dict(action_prior="beta"), "action_prior is 'beta'; expected one of"),
    (SAC, dict(alpha_init=0.0), "alpha_init is 0.0; expected above 0"),
    (SAC, dict(fixed_alpha=-0.1), "fixed_alpha is -0.1; expected a number from 0"),
    (SAC, dict(fixed_alpha=0.1, target_entropy=-7.0), "target_entropy .*fixed_alpha 0.1 is not learned; expected one"),
    (SAC, dict(fixed_alpha=0.1, alpha_init=0.2), "target_entropy .*alpha_init 0.2, but fixed_alpha 0.1 is not learned"),
    (SAC, dict(target_entropy=math.inf), "target_entropy is inf; expected a finite number or"),
    (SAC, dict(reward_scale=0.0), "reward_scale is 0.0; expected above 0"),
    (TD3, dict(policy_update_interval=1.5), "policy_update_interval is 1.5; expected a whole number from 1"),
    (DDPG, dict(random_shift=-1), "random_shift is -1; expected a whole number from 0"),
    (SAC, dict(random_shift=2, augment=RandomShift(4)), "random_shift and augment are set; expected one of"),
    (DDPG, dict(q_learning_rate=-1.0), "q_learning_rate is -1.0; expected a number from 0"),
    (DDPG, dict(q_target_clip=0.0), "q_target_clip is 0.0; expected above 0"),
    (DDPG, dict(input_priorities=True, prioritized_replay=True), "input_priorities is True; expected False"),
    (CategoricalDQN, dict(input_priorities=True, prioritized_replay=True), "input_priorities is True.*follow from Q-"),
    (R2D1, dict(prioritized_replay=False, input_priorities=True), "input_priorities set with prioritized_replay=False"),
    (DQN, dict(default_priority=2.0, unique_draws=True), "default_priority, unique_draws set with prioritized_replay"),
    (DQN, dict(prioritized_replay=True, late_priorities=True), "late_priorities is True with prefetch=False, .*; exp"),
    (DQN, dict(prefetch=True, late_priorities=True), "late_priorities set with prioritized_replay=False"),
    (DQN, dict(return_limit=5.0), "return_limit is 5.0, and normalize_reward False, without which it is not used"),
    (DQN, dict(normalize_reward=True, return_limit=0.0), "return_limit is 0.0; expected above 0"),
    (DQN, dict(normalize_reward=True, **ACTED), "normalize_reward and input_priorities are set; expected one"),
    (DQN, dict(munchausen=0.9, double_dqn=True), "munchausen and double_dqn are set"),
    (DQN, dict(munchausen=0.9, value_scale_eps=1e-3), "munchausen and value_scale_eps are set"),
    (DQN, dict(munchausen=0.9, **ACTED), "munchausen and input_priorities are set"),
    (R2D1, dict(munchausen=0.9, value_scale_eps=None, double_dqn=False), "munchausen and input_priorities are set"),
    (DQN, dict(munchausen_tau=0.0), "munchausen_tau is 0.0; expected above 0"),
    (DQN, dict(munchausen_lowest=0.0), "munchausen_lowest is 0.0; expected below 0"),
    (CategoricalDQN, dict(munchausen=0.9), "munchausen is set, .* projected from the atoms of one action"),
    (DQN, dict(stored_fraction=0.5), r"stored_fraction is 0\.5 and stored_data None"),
    (DQN, dict(stored_data="x.npz", stored_fraction=0.0), r"stored_fraction is 0.0 .*expected a number in \(0, 1\]"),
    (DQN, dict(stored_data="x.npz", **ACTED), "stored_data .*nobody has recorded values of stored rows"),
    (DQN, dict(hindsight="future", ReadingCls=Transitions), "hindsight and ReadingCls are set"),
    (DQN, dict(hindsight="future", replay_on_device=True), "hindsight and replay_on_device are set"),
    (DQN, dict(hindsight="future", batch_T=4, batch_B=2), "hindsight and batch_T are set.*Use a feed-forward agent"),
    (CategoricalDQN, dict(V_min=math.inf), "V_min.*inf.*expected a finite number"),
    (CategoricalDQN, dict(V_min=2.0, V_max=2.0), "V_max is 2.0; expected a finite number above V_min, 2.0"),
]


@pytest.mark.parametrize(("AlgoCls", "kwargs", "message"), OUT_OF_RANGE, ids=[m[:40] for _, _, m in OUT_OF_RANGE])
def test_out_of_range(AlgoCls, kwargs, message):
    with pytest.raises(ValueError, match=f"{AlgoCls.__name__}: {message}"):
        AlgoCls(**kwargs)


@pytest.mark.parametrize(
    ("AlgoCls", "kwargs", "message"),
    [
        (PPO, dict(clip_grad_norm=None), "clip_grad_norm is None; expected .*Give float.'inf'. for no clipping."),
        (A2C, dict(OptimCls="adam"), "OptimCls is 'adam'; expected a class"),
        (A2C, dict(optim_kwargs=dict(lr=0.1)), "optim_kwargs has lr; .* Write learning_rate=0.1"),
        (DQN, dict(stored_data=3), "stored_data is 3; expected an rlpyt.replays.StoredData"),
        (DQN, dict(hindsight=4), 'hindsight is 4; expected an rlpyt.replays.Hindsight.* Give hindsight="future"'),
        (DQN, dict(replay_size=lambda step: 32), "replay_size is <function.*; expected a whole .* memory is allocated"),
        (DQN, dict(n_step_return="lin_5_1"), "n_step_return is 'lin_5_1' of type str; .* second run from the weights"),
        (R2D1, dict(batch_T="lin_8_4"), "batch_T is .*Give a number, and schedule batch_B"),
    ],
)
def test_wrong_kinds(AlgoCls, kwargs, message):
    with pytest.raises(TypeError, match=f"{AlgoCls.__name__}: {message}"):
        AlgoCls(**kwargs)


def test_whole_numbers_of_any_type_serve_and_stay_as_they_were_given():
    ppo = build(PPO, minibatches=2.0, epochs=np.int64(3))
    sampler = set_up(ppo, CategoricalPgAgent(), RandomEnv)
    assert optimize(ppo, 0, sampler.obtain_samples(0)[0])["loss"].shape == (2 * 3,)
    assert (type(ppo.minibatches), type(ppo.epochs)) == (float, np.int64)
    dqn = build(DQN, batch_size=32.0, replay_size=1e3, min_steps_learn=100.0, n_step_return=3.0)
    sampler = set_up(dqn, DqnAgent(), RandomEnv)
    learn_from(dqn, sampler, 5)
    assert dqn.update_counter > 0
    assert (type(dqn.batch_size), dqn.batch_size, type(dqn.replay_size)) == (float, 32, float)
    assert type(rows_per_update(dqn)) is int


def test_numbers_of_numpy_are_numbers_to_the_linear_schedule():
    number: Any
    for number in (0.25, np.float32(0.25), np.float64(0.25)):
        ppo = PPO(learning_rate=number, ratio_clip=number)
        starting(ppo, CategoricalPgAgent())
        hyper = ppo.hyper(ppo.n_steps // 2)
        assert (hyper.learning_rate, hyper.ratio_clip, ppo.hyper(0).learning_rate) == (0.125, 0.125, 0.25)
        assert hyper_parameters(ppo)["learning_rate"] == 0.25  # as it was given
    assert PPO(learning_rate=1, linear_lr_schedule=False).learning_rate == 1
    assert PPO(learning_rate="cos_0.1").learning_rate == "cos_0.1"


def test_no_arguments_of_the_optimiser_as_rlpyt_0_1_wrote_it():
    for AlgoCls in (A2C, PPO, DQN):
        assert build(AlgoCls, optim_kwargs=None).optim_kwargs is None
    algo = build(A2C, optim_kwargs=None)
    sampler = set_up(algo, CategoricalPgAgent(), RandomEnv)
    optimize(algo, 0, sampler.obtain_samples(0)[0])
    assert algo.update_counter == 1


def starting(algo: Any, agent: Any, **kwargs: Any) -> None:
    set_up(algo, agent, RandomEnv, **kwargs)


# ---- settings that do not fit the agent, the batch or the length of the run ----

SMALL: dict[str, Any] = dict(hidden_sizes=4)
RNN: dict[str, Any] = dict(**SMALL, rnn_size=4)
CUTS: dict[str, Any] = dict(batch_T=4, batch_B=2, warmup_T=2, store_rnn_state_interval=2)
DQN_AGENT = partial(DqnAgent, model_kwargs=SMALL)
PG_AGENT = partial(CategoricalPgAgent, model_kwargs=SMALL)
RNN_PG_AGENT = partial(RecurrentCategoricalPgAgent, model_kwargs=RNN)
R2D1_AGENT = partial(R2d1Agent, model_kwargs=RNN)
R2D1_OF_64 = partial(R2D1, **CUTS, min_steps_learn=64, replay_size=1000)
PQN_AGENT = partial(PqnAgent, model_kwargs=SMALL)
SAC_WITHOUT_TARGETS = partial(SacAgent, has_targets=False)
NORMS: dict[str, Any] = dict(layers="batch_norm", hidden_sizes=(8, 8))


class TorchNormQ(torch.nn.Module):
    """Action values of one's own, with batch normalisation of torch."""

    def __init__(self, observation_shape: tuple[int, ...], action_size: int, n_models: int) -> None:
        super().__init__()
        self.n_models = n_models
        size = observation_shape[0] + action_size
        self.layers = torch.nn.Sequential(torch.nn.BatchNorm1d(size), torch.nn.Linear(size, 1))

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.layers(torch.cat([observation, action], -1)).squeeze(-1)
        return values.expand(self.n_models, -1)


BOX: dict[str, Any] = dict(action_space=spaces.Box(-1, 1, (2,)))
BOX_TOO: dict[str, Any] = dict(env_kwargs=BOX)
NO_START: list[tuple[Any, Any, dict[str, Any], Any, str]] = [
    (PPO(minibatches=5), PG_AGENT, {}, ValueError, r"minibatches is 5, .*does not divide .*8 x 4 = 32. .* example 4"),
    (PPO(minibatches=33), PG_AGENT, {}, ValueError, r"minibatches is 33, .* Choose a divisor, for example 32"),
    (PPO(minibatches=8), RNN_PG_AGENT, {}, ValueError, r"minibatches is 8, .*batch_B, 4, .*whole sequences.* 4"),
    (PQN(minibatches=5), PQN_AGENT, {}, ValueError, r"PQN: minibatches is 5, .* 8 x 4 = 32. Choose .* example 4"),
    (A2C(learning_rate=Linear(1e-3, begin=320)), PG_AGENT, {}, ValueError, r"learning_rate: .* a run of 320 steps; ex"),
    (DQN(replay_ratio=0.4, min_steps_learn=100), DQN_AGENT, {}, ValueError,
     r"8 x 4 rows .*replay_ratio 0.4 are 12.8 rows .*no update of batch_size 32"),
    (DQN(replay_ratio=4, batch_size=256, min_steps_learn=100), DQN_AGENT, {}, ValueError, r"raise replay_ratio to 8\."),
    (DQN(min_steps_learn=321), DQN_AGENT, {}, ValueError, r"is 321, but the run has only 320 steps.*Lower .*n_steps"),
    (DQN(min_steps_learn=0, n_step_return=3), DQN_AGENT, dict(T=2, n_itr=50), ValueError,
     r"find 2 rows of each environment.*expected at least 5 with n_step_return 3. Raise min_steps_learn to 20 or"),
    (DQN(min_steps_learn=50, replay_size=24, n_step_return=5), DQN_AGENT, {}, ValueError,
     r"expected at least 7, .* Raise replay_size to 28 or more"),
    (R2D1_OF_64(store_rnn_state_interval=3), R2D1_AGENT, {}, ValueError,
     r"batch_T=4 and rnn_state_interval=3; expected batch_T to be a multiple of it"),
    (R2D1_OF_64(replay_size=40), R2D1_AGENT, {}, ValueError, r"room for 10 rows of each of 4 environments; exp"),
    (R2D1_OF_64(min_steps_learn=8), R2D1_AGENT, {}, ValueError,
     r"first update would find 8 rows of each .* at least \d+ with n_step_return 5"),
    # agents of other algorithms
    (A2C(), DQN_AGENT, {}, TypeError, r"the agent, a DqnAgent, .*CategoricalPgAgent.*RlAlgorithm"),
    (PPO(), DQN_AGENT, {}, TypeError, r"the agent, a DqnAgent, .*CategoricalPgAgent.*RlAlgorithm"),
    (VTrace(), DQN_AGENT, {}, TypeError, r"the agent, a DqnAgent, .*CategoricalPgAgent.*RlAlgorithm"),
    (PQN(), DQN_AGENT, {}, TypeError, "PQN: the agent is a DqnAgent; expected a PqnAgent"),
    (DQN(), PQN_AGENT, {}, TypeError, "DQN: the agent, a PqnAgent, is one whose network gives q and no target"),
    (DQN(), PG_AGENT, {}, TypeError, r"DQN: the agent, a CategoricalPgAgent, is no Q-learner; expected .*DqnAgent"),
    (IQN(), RNN_PG_AGENT, {}, TypeError, r"IQN: the agent, a .*, is no Q-learner; expected .*DqnAgent"),
    (DQN(), CatDqnAgent, {}, TypeError, r"gives categorical; expected one whose network gives q\. .*CatDqnAgent.*IqnA"),
    (CategoricalDQN(), DQN_AGENT, {}, TypeError, r"a DqnAgent, is one .* gives q; expected .*categ"),
    (QRDQN(), IqnAgent, {}, TypeError, r"an? IqnAgent, is one .* gives implicit quantiles; expected .* quantiles"),
    (IQN(**CUTS), RecurrentQrDqnAgent, {}, TypeError, r"gives quantiles; expected .* gives implicit quantiles"),
    (R2D1(), RecurrentCatDqnAgent, {}, TypeError, r"R2D1: .* gives categorical; expected one whose network gives q\."),
    (DQN(), R2D1_AGENT, {}, ValueError, r"DQN: batch_T is None.* R2d1Agent, is recurrent.*expected both"),
    (R2D1(), DQN_AGENT, {}, ValueError, r"R2D1: batch_T is 80, batch_B is 64.*feed-forward.*expected neither"),
    (DDPG(), DQN_AGENT, {}, TypeError, r"DDPG: the agent, a DqnAgent, has no policy with action values; .*SacAgent"),
    (SAC(), DqnAgent, {}, TypeError, r"SAC: the agent, a DqnAgent, has no policy with action values; .*SacAgent"),
    (SAC(), DdpgAgent, BOX_TOO, (TypeError, ValueError), "SAC: .*expected"),
    (SAC(), Td3Agent, BOX_TOO, (TypeError, ValueError), "SAC: .*expected"),
    (DDPG(), SacAgent, BOX_TOO, (TypeError, ValueError), "DDPG: .*expected"),
    (TD3(), SacAgent, BOX_TOO, (TypeError, ValueError), "TD3: .*expected"),
    (TD3(), DdpgAgent, BOX_TOO, (TypeError, ValueError), "TD3: .*expected"),
    (SAC(), SAC_WITHOUT_TARGETS, BOX_TOO, ValueError, "SAC: the agent, a SacAgent, has no target networks"),
    (SAC(joint_pass=True, batch_T=2, batch_B=2), partial(RecurrentSacAgent, has_targets=False), BOX_TOO, ValueError,
     r"SAC\(joint_pass=True\): the agent, a RecurrentSacAgent, is recurrent; expected one that is not"),
    (SAC(), partial(SacAgent, q_model_kwargs=NORMS), BOX_TOO, ValueError, "SAC: the agent, .* has batch normalisation"),
    (SAC(), partial(SacAgent, QModelCls=TorchNormQ), BOX_TOO, ValueError, "SAC: the agent, .* has batch normalisation"),
    (TD3(), partial(Td3Agent, model_kwargs=dict(NORMS, layers="xqc")), BOX_TOO, ValueError,
     "TD3: the agent, a Td3Agent, has batch normalisation"),
    (DQN(munchausen=0.9), partial(DqnAgent, value_head="quantiles:5"), {}, ValueError, "follows one action's return"),
    (SAC(action_prior="gaussian"), DiscreteSacAgent, {}, ValueError, "action_prior is 'gaussian', and the actions are"),
    (SAC(target_entropy=-2.0), DiscreteSacAgent, {}, ValueError,
     "target_entropy is -2.0; expected a fraction of the largest entropy"),
    (SAC(joint_pass=True), partial(DiscreteSacAgent, has_targets=False), {}, ValueError,
     "joint_pass is True, and the actions are discrete"),
    (SAC(n_target_q=3, min_steps_learn=64), SacAgent, BOX_TOO, ValueError, "is 3 of the agent's 2 networks"),
    (SAC(random_shift=2, min_steps_learn=64), SacAgent, BOX_TOO, ValueError, "random_shift is 2, but no part of"),
]  # fmt: skip


@pytest.mark.parametrize(("algo", "agent", "problem", "error", "message"), NO_START, ids=[x[-1][:40] for x in NO_START])
def test_parts_that_do_not_fit_are_refused_at_the_start(algo, agent, problem, error, message, monkeypatch):
    # A sampler that asks for values would find out first that the agent gives none.
    monkeypatch.setattr(type(algo), "bootstrap_value", False, raising=False)
    with pytest.raises(error, match=message):
        starting(algo, agent(), **problem)


@pytest.mark.parametrize(
    ("algo", "agent", "problem"),
    [
        (PPO(minibatches=8), PG_AGENT, {}),
        (DQN(replay_ratio=8, batch_size=256, min_steps_learn=100), DQN_AGENT, {}),
        (DQN(min_steps_learn=320), DQN_AGENT, {}),
        (DQN(min_steps_learn=20, n_step_return=3), DQN_AGENT, dict(T=2, n_itr=50)),
        (R2D1_OF_64(), R2D1_AGENT, {}),
    ],
)
def test_parts_that_just_fit_learn(algo, agent, problem):
    sampler = set_up(algo, agent(), RandomEnv, dict(p_end=0.0), **problem)
    learn_from(algo, sampler, 10 if not problem else 50)
    assert algo.update_counter > 0


def test_too_few_places_at_the_first_update_for_draws_that_are_unique():
    kwargs: dict[str, Any] = dict(unique_draws=True, prioritized_replay=True, batch_size=64, n_step_return=3)
    message = (
        r"unique_draws is True, and an update draws 64 different places of the replay; expected at most the 48 that "
        r"16 rows .* 4 environments.*Raise min_steps_learn and replay_size to 80 or more, so that 20 rows"
    )
    with pytest.raises(ValueError, match=message):
        starting(DQN(**kwargs, min_steps_learn=64), DqnAgent())
    with pytest.raises(ValueError, match=r"DQN: unique_draws is True"):
        starting(DQN(**kwargs, min_steps_learn=200, replay_size=64), DqnAgent())
    kwargs |= dict(batch_T=4, warmup_T=0, store_rnn_state_interval=4, min_steps_learn=96, replay_ratio=9)
    kwargs |= dict(n_step_return=1)
    with pytest.raises(ValueError, match=r"draws 17 different places .* expected at most the 16 "):
        starting(R2D1(**kwargs, batch_B=17), R2D1_AGENT())
    algo = R2D1(**kwargs, batch_B=16)  # as many as there are
    sampler = set_up(algo, R2D1_AGENT(), RandomEnv, dict(p_end=0.0))
    metrics = learn_from(algo, sampler, 3)[-1]
    assert len(metrics["loss"]) > 0


class Frames(RandomEnv):
    """Whole stacks of four frames, in a plain Box."""

    def __init__(self, p_end: float = 0.2) -> None:
        super().__init__(p_end=p_end)
        self.observation_space = spaces.Box(0, 255, (4, 12, 12), np.uint8)

    def _observation(self) -> np.ndarray:
        return np.zeros((4, 12, 12), np.uint8)


class QOfFrames(torch.nn.Module):
    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.q = torch.nn.Linear(1, 3)

    def forward(self, observation: torch.Tensor, prev_action: Any, prev_reward: torch.Tensor) -> torch.Tensor:
        q: torch.Tensor = self.q(prev_reward.unsqueeze(-1))
        return q


FRAMES_AGENT = partial(DqnAgent, ModelCls=QOfFrames)
REPLAYS: dict[str, Any] = {
    "stacks": (DQN, FRAMES_AGENT, Frames, {}, {}),
    "frames": (DQN, FRAMES_AGENT, Frames, {}, dict(frame_stack=4)),
    "C51": (CategoricalDQN, CatDqnAgent, RandomEnv, {}, {}),
    "R2D1": (R2D1, R2D1_AGENT, RandomEnv, {}, dict(CUTS, replay_ratio=1.5)),
    "SAC": (SAC, SacAgent, RandomEnv, BOX, {}),
}


@pytest.mark.parametrize(("case", "n_step"), [("SAC", 1), ("C51", 3), ("stacks", 1), ("frames", 1)])
def test_a_replay_whose_only_place_may_be_a_final_row_is_refused(case, n_step):
    AlgoCls, agent, EnvCls, env_kwargs, settings = REPLAYS[case]
    settings = dict(min_steps_learn=64, n_step_return=n_step, **settings)
    rows = (3 if case == "frames" else 1) + 1 + n_step
    with pytest.raises(ValueError, match=rf"room for {rows} rows .* Raise replay_size to {4 * rows + 4} or more"):
        set_up(AlgoCls(replay_size=4 * rows, **settings), agent(), EnvCls, env_kwargs)
    algo = AlgoCls(replay_size=4 * rows + 4, batch_size=4, replay_ratio=1, **{**settings, "min_steps_learn": 32})
    # Every other row is a final row.
    learn_from(algo, set_up(algo, agent(), EnvCls, {**env_kwargs, "p_end": 1.0}), 4)
    assert algo.update_counter > 0


# ---- a replay larger than the memory ----


@pytest.mark.parametrize("case", REPLAYS)
def test_a_replay_larger_than_what_is_free_is_warned_of_with_its_size(case, monkeypatch):
    AlgoCls, agent, EnvCls, env_kwargs, settings = REPLAYS[case]
    monkeypatch.setattr(replay_settings, "free_memory", lambda: 0)
    monkeypatch.setattr(replay_settings, "total_memory", lambda: 10**12)
    algo = AlgoCls(**{"min_steps_learn": 64, "replay_size": 320, **settings})
    suggested = r", give frame_stack=4, to keep each frame once, if .* a stack of 4 frames" if case == "stacks" else ""
    with pytest.warns(UserWarning, match=rf"{AlgoCls.__name__}: .* Lower replay_size{suggested}, or give rep") as told:
        set_up(algo, agent(), EnvCls, env_kwargs)
    # What will be made has the size that was told before.
    assert f"needs {algo.replay.nbytes:,} bytes of memory and" in str(told[0].message)


def test_a_replay_that_the_system_refuses_is_told_by_its_settings(monkeypatch):
    monkeypatch.setattr(replay_settings, "free_memory", lambda: 10**30)
    with pytest.raises(ValueError, match=r"DQN: making the replay: .*\. Lower replay_size \(the run has 320 rows\)"):
        set_up(DQN(min_steps_learn=64, replay_size=10**12), FRAMES_AGENT(), Frames)


@pytest.mark.parametrize(
    ("n_bytes", "facts", "error", "told"),
    [
        (9_000, {}, None, ""),  # of which the run fills a tenth
        (900, dict(shared=True), None, ""),
        (5_000, dict(n_here=2), None, ""),
        (15_000, {}, UserWarning, "needs 1,500 bytes of memory and this process can have 1,000 now: the run may be"),
        (
            5_000,
            dict(n_here=3),
            UserWarning,
            "needs 1,500 bytes of memory, in 3 replicas on this machine, and .* 1,0",
        ),
        (5_000, dict(n_here=5), ValueError, "needs 2,500 bytes of memory, in 5 .* 2,000 at most. Lower"),
        (1_100, dict(shared=True), ValueError, "a replay of .* needs 1,100 bytes of memory and .* have 1,000 at most"),
    ],
)
def test_private_memory_counts_as_it_is_filled_shared_memory_whole_and_replicas_together(
    n_bytes, facts, error, told, monkeypatch
):
    monkeypatch.setattr(replay_settings, "free_memory", lambda: 1000)
    monkeypatch.setattr(replay_settings, "total_memory", lambda: 2000)
    replicas = SimpleNamespace(n_on_this_machine=facts.get("n_here", 1))
    algo: Any = SimpleNamespace(n_itr=10, batch_spec=SimpleNamespace(size=10), replicas=replicas)
    storage: Any = SimpleNamespace(T=100, B=10, nbytes=n_bytes)
    check = partial(replay_settings.check_memory, algo, storage, np.zeros(()), False, facts.get("shared", False))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with nullcontext() if error is None else pytest.raises(error, match=told):
            check()

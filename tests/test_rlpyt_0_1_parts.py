"""Parts of one's own as users of rlpyt 0.1 wrote them: they work, or are refused with what to do instead."""

from __future__ import annotations

import copy
import importlib
import pickle
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from rlpyt.agents import BaseAgent, CategoricalPgAgent, DdpgAgent, DqnAgent, RecurrentCategoricalPgAgent, SacAgent
from rlpyt.algos import A2C, DDPG, DQN, PPO, SAC, RlAlgorithm
from rlpyt.compat.methods import OLD_ATTRIBUTES, OLD_METHODS
from rlpyt.compat.names import SETTINGS
from rlpyt.core import EvalResult
from rlpyt.distributions import Categorical, EpsilonGreedy, Gaussian
from rlpyt.envs import AtariEnv, EnvSpaces, GymEnvWrapper
from rlpyt.logging import logger, logger_context
from rlpyt.namedarraytuple import namedarraytuple
from rlpyt.old_rlpyt import PAGE, check_class
from rlpyt.runners import MinibatchRl, MinibatchRlEval
from rlpyt.samplers import CpuSampler, SerialSampler
from rlpyt.spaces import FloatBox, IntBox
from rlpyt.types import TrajInfo
from rlpyt.utils.affinity import AttrDict
from tests.algos.small_problems import RandomEnv, set_up, train
from tests.test_rlpyt_0_1 import library_class
from tests.toy_envs import CountingEnv

REPLAY: dict[str, Any] = dict(min_steps_learn=64, batch_size=8, replay_size=256, replay_ratio=1)
SMALL: dict[str, Any] = dict(hidden_sizes=[4])
OptInfo = namedtuple("OptInfo", ["loss", "gradNorm"])


def run(algo: Any, agent: Any, action_space: Any = None, Runner: Any = MinibatchRl, **options: Any) -> Any:
    env_kwargs = dict(action_space=action_space or Discrete(3))
    sampler = SerialSampler(RandomEnv, env_kwargs, batch_T=8, batch_B=4, max_decorrelation_steps=0, **options)
    runner = Runner(algo, agent, sampler, n_steps=128, log_interval_steps=64, seed=0)
    runner.train()
    return runner


# ---- algorithms ----


class FromNothing(RlAlgorithm):
    """With an optimiser, a loop and a named tuple of lists of its own."""

    opt_info_fields = ("loss", "gradNorm")
    batch_size = 32

    def initialize(self, agent: Any, *args: Any, **kwargs: Any) -> None:
        super().initialize(agent, *args, **kwargs)
        self.optimizer = self.OptimCls(agent.parameters(), lr=1e-3)

    def optimize_agent(self, itr: int, samples: Any) -> Any:
        opt_info = OptInfo(*([] for _ in OptInfo._fields))
        assert self.agent.mode == "train"
        assert self.agent.model.training
        _, value = self.agent(samples.env.observation, samples.agent.prev_action, samples.env.prev_reward)
        loss = value[samples.env.valid].square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        opt_info.loss.append(loss.item() * (self.n_itr - itr) / self.n_itr)
        opt_info.gradNorm.append(torch.nn.utils.clip_grad_norm_(self.agent.parameters(), 1.0))
        self.optimizer.step()
        self.update_counter += 1
        return opt_info


def test_an_algorithm_from_nothing_trains():
    assert run(FromNothing(), CategoricalPgAgent(model_kwargs=SMALL)).algo.update_counter == 4


def test_an_algorithm_that_does_not_call_its_base_is_told_to():
    class Alone(FromNothing):
        def initialize(self, agent: Any, *args: Any, **kwargs: Any) -> None:
            self.optimizer = self.OptimCls(agent.parameters(), lr=1e-3)

    with pytest.raises(AttributeError, match=r"Alone has no '\w+'. RlAlgorithm.initialize sets it. Call super"):
        run(Alone(), CategoricalPgAgent(model_kwargs=SMALL))


@pytest.mark.parametrize(("Base", "name"), [(RlAlgorithm, "optim_kwargs"), (CategoricalPgAgent, "numbers")])
def test_a_part_whose_constructor_does_not_call_its_base_is_told_to(Base, name):
    class Alone(Base):  # type: ignore[misc, valid-type]
        def __init__(self, discount: float = 0.9) -> None:
            self.discount = discount

    with pytest.raises(
        AttributeError, match=rf"Alone has no '{name}'\. The constructor of the base sets it\. Call super"
    ):
        getattr(Alone(), name)


@pytest.mark.parametrize(
    ("AlgoCls", "agent", "at_end"),
    [(DQN, DqnAgent(model_kwargs=SMALL), 0.5), (SAC, SacAgent(), 1.0), (DDPG, DdpgAgent(), 1.0)],
)
def test_exploration_goes_on_under_an_own_loop_of_updates(AlgoCls, agent, at_end):
    class Mine(AlgoCls):  # type: ignore[misc, valid-type]
        def optimize_agent(self, itr: int, samples: Any = None, sampler_itr: Any = None) -> Any:
            self.replay_buffer.append_samples(self.samples_to_buffer(samples))
            progress.append(agent.fraction)
            self.update_counter += 1
            return {}

    progress: list[float] = []
    algo = Mine(**REPLAY, **({"eps_steps": 256} if AlgoCls is DQN else {}))
    run(algo, agent, None if AlgoCls is DQN else Box(-1, 1, (2,)))
    assert progress == ([0.125, 0.25, 0.375, 0.5] if AlgoCls is DQN else [0.0, 1.0, 1.0, 1.0])
    assert agent.fraction == at_end
    assert agent.acting_copy().exploration.fraction_after(0) is None


def test_a_hyper_parameter_that_is_set_during_a_run_holds_from_then_on():
    class Mine(PPO):
        def optimize_agent(self, itr: int, samples: Any) -> Any:
            metrics = super().optimize_agent(itr, samples)
            self.ratio_clip = 0.2 * (self.n_itr - itr) / self.n_itr
            self.entropy_loss_coeff = "lin_1"
            self.target_kl = None if itr else 10.0
            return metrics

        def loss(self, batch: Any, init_rnn_state: Any, hyper: Any) -> Any:
            seen.append((hyper.ratio_clip, hyper.entropy_loss_coeff, hyper.target_kl))
            return super().loss(batch, init_rnn_state, hyper)

    seen: list[Any] = []
    algo = Mine(epochs=1, minibatches=1, ratio_clip=0.3, linear_lr_schedule=False)
    train(algo, CategoricalPgAgent(model_kwargs=SMALL), RandomEnv, n_itr=4)
    assert [clip for clip, *_ in seen] == pytest.approx([0.3, 0.2, 0.15, 0.1])
    assert [entropy for _, entropy, _ in seen] == pytest.approx([0.01, 0.75, 0.5, 0.25])
    assert [kl for *_, kl in seen] == [None, 10.0, None, None]


class ExtendsMetrics:
    """Adds to the named tuple that its base returned, whichever that is."""

    def optimize_agent(self, itr: int, samples: Any) -> Any:
        opt_info = super().optimize_agent(itr, samples)  # type: ignore[misc]
        assert opt_info.loss.isfinite().all()
        with pytest.raises(AttributeError, match=r"No metric is 'nonsense' in this iteration; they are \['loss'"):
            opt_info.nonsense  # noqa: B018
        make: Any = namedtuple
        return make("Extended", [*opt_info._fields, "steps"])(**opt_info._asdict(), steps=[itr, itr])


@pytest.mark.parametrize("Base", [A2C, PPO])
def test_metrics_may_be_extended_as_a_named_tuple(Base):
    Mine = type("Mine", (ExtendsMetrics, Base), {})
    assert run(Mine(), CategoricalPgAgent(model_kwargs=SMALL)).algo.update_counter >= 4


# ---- agents ----


class ActsByProbabilities(CategoricalPgAgent):
    """Takes the probabilities that rlpyt 0.1 recorded, and draws its actions itself."""

    def step(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        action, agent_info = step = super().step(observation, prev_action, prev_reward)
        prob = agent_info.dist_info.prob
        assert torch.allclose(prob.sum(-1), torch.ones(len(action)))
        if self._mode == "eval":
            return type(step)(prob.argmax(-1), agent_info)
        return step._replace(action=self.distribution.sample(agent_info.dist_info, self.draw_noise()))


def test_an_agent_may_act_by_probabilities():
    run(A2C(), ActsByProbabilities(model_kwargs=SMALL), eval_n_envs=1, eval_max_trajectories=1, Runner=MinibatchRlEval)


def test_a_method_that_would_not_be_called_is_refused_with_the_model():
    class Normalised(nn.Module):
        def update_obs_rms(self, observation: Any) -> None:
            pass

    agent = DqnAgent(ModelCls=Normalised)
    with pytest.raises(TypeError, match=r"Normalised, has update_obs_rms, which is called of subclasses .*Derive it"):
        agent.initialize(EnvSpaces(Box(-1, 1, (3,)), Discrete(2)))
    with pytest.raises(TypeError, match=r"Mine.update_obs_rms: .* nothing calls it now.* of the model, a rlpyt"):
        type("Mine", (DqnAgent,), {"update_obs_rms": Normalised.update_obs_rms})()


def test_reset_is_called_before_every_evaluation():
    class Mine(DqnAgent):
        n_resets = 0

        def reset(self) -> None:
            super().reset()
            self.n_resets += 1

    agent = Mine(model_kwargs=SMALL)
    run(DQN(**REPLAY), agent, eval_n_envs=2, eval_max_trajectories=2, Runner=MinibatchRlEval)
    # Before and after the example row, before the first batch and the first iteration, and with two rows of the log.
    assert agent.n_resets == 6
    agent = Mine(model_kwargs=SMALL)
    agent.initialize(EnvSpaces(Box(-1, 1, (3,)), Discrete(2)))
    agent.eval_mode(0)  # by hand
    assert agent.n_resets == 1


def test_a_network_that_would_be_stale_in_the_workers_is_warned_of():
    class Mine(DqnAgent):
        def initialize(self, *args: Any, **kwargs: Any) -> None:
            super().initialize(*args, **kwargs)
            self.curiosity = nn.Linear(3, 3)

    def collect(agent: Any) -> None:
        sampler = CpuSampler(RandomEnv, {}, batch_T=2, batch_B=1, n_workers=1, max_decorrelation_steps=0)
        try:
            sampler.initialize(agent)
            sampler.obtain_samples(0)
        finally:
            sampler.shutdown()

    with pytest.warns(UserWarning, match=r"Mine: the workers get its curiosity once.*docs/howto/own_agent.md"):
        collect(Mine(model_kwargs=SMALL))


# ---- evaluations ----


def test_an_evaluation_is_no_list():
    result: Any = EvalResult([], 3, 0)
    for use in (list, len, bool, lambda x: x[0]):
        with pytest.raises(TypeError, match=rf"unpacked, or taken for a list.* Write result.traj_infos. See {PAGE}"):
            use(result)
    with pytest.raises(TypeError, match=r"Write result.traj_infos"):
        _traj_infos, _eval_time = result  # as the runner of rlpyt 0.1 had it
    assert pickle.loads(pickle.dumps(result)) == result


# ---- samplers, runners, spaces ----


@pytest.mark.parametrize("calls_base", [True, False])
def test_statistics_of_a_trajectory_may_use_its_discount(calls_base):
    class Mine(TrajInfo):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.DiscountedCost = 0.0
            self._cur_discount = 1

        def step(self, observation: Any, action: Any, reward: Any, done: Any, agent_info: Any, env_info: Any) -> None:
            self.DiscountedCost += self._cur_discount * 2
            if calls_base:
                super().step(observation, action, reward, done, agent_info, env_info)
            else:
                self._cur_discount *= self._discount

    info = Mine(discount=0.5)
    for _ in range(3):
        info.step(None, None, 1.0, False, None, {})
    assert info.DiscountedCost == 2 * (1 + 0.5 + 0.25)
    assert "_cur_discount" not in info.statistics()


def test_a_gap_may_be_set_before_the_run(tmp_path):
    logger.set_snapshot_gap(3)
    try:
        with logger_context(tmp_path, snapshot_mode="gap") as outer:
            logger.set_snapshot_gap(4)
            with logger_context(tmp_path) as inner:
                assert (outer.snapshot_gap, inner.snapshot_gap) == (4, 1)
        with logger_context(tmp_path, snapshot_gap=2) as given:
            assert given.snapshot_gap == 2
        with logger_context(tmp_path) as again:
            assert again.snapshot_gap == 3
    finally:
        logger.set_snapshot_gap(1)


def test_a_name_of_an_old_module_cannot_be_set():
    collections: Any = importlib.import_module("rlpyt.samplers.collections")
    context: Any = importlib.import_module("rlpyt.utils.logging.context")
    with pytest.raises(AttributeError, match=rf"LOG_DIR of rlpyt 0.1 was set, .* takes log_dir as it is .*{PAGE}"):
        context.LOG_DIR = "/data"
    with pytest.raises(AttributeError, match=r"TrajInfo of rlpyt 0.1 was set, .*: it is rlpyt.samplers.TrajInfo now"):
        collections.TrajInfo = object
    context.something = 1
    assert context.something == 1


@pytest.mark.parametrize(("bound", "is_said"), [(0.01, True), (1.0, False)])
def test_the_start_of_a_run_says_that_actions_are_scaled_to_their_bounds(bound, is_said, capsys):
    space = Box(-bound, bound, (2,), np.float32)
    set_up(DDPG(batch_size=4, replay_size=50, min_steps_learn=20), DdpgAgent(), RandomEnv, dict(action_space=space))
    assert ("scale actions to the bounds of Box(-0.01, 0.01" in capsys.readouterr().out) == is_said


# ---- what is refused, and what to do instead ----


class OwnReplay(DQN):
    def initialize_replay_buffer(self, *args: Any, **kwargs: Any) -> None:
        self.replay_buffer = type("Mine", (), {})()


class OwnRows(DQN):
    def samples_to_buffer(self, samples: Any) -> Any:
        Rows = namedarraytuple("Rows", ["observation", "action", "reward", "done"])
        return Rows(samples.env.observation, samples.agent.action, samples.env.reward, samples.env.done)


class OwnEvaluation(SerialSampler):
    def evaluate_agent(self, itr: int, deterministic: bool = False) -> Any:
        return super().evaluate_agent(itr).traj_infos


class OwnStatistics(AttrDict):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(Score=0)


class OwnRunner(MinibatchRl):
    def __init__(self, log_traj_window: int = 100, **kwargs: Any) -> None:
        super().__init__(log_traj_window, **kwargs)  # type: ignore[arg-type]


class OwnAgent(BaseAgent):
    def act(self, output: Any, actor: Any) -> Any: ...


class OwnParameters(CategoricalPgAgent):
    def parameters(self) -> Any:
        return {"actor": list(super().parameters())}


def to_device(cuda_idx: Any) -> None:
    agent = DqnAgent(model_kwargs=SMALL)
    agent.initialize(EnvSpaces(Box(-1, 1, (3,)), Discrete(2)))
    agent.to_device(cuda_idx)


def initialized(SamplerCls: Any = SerialSampler, EnvCls: Any = CountingEnv, **options: Any) -> Any:
    sampler = SamplerCls(EnvCls, {}, batch_T=8, batch_B=4, **options)
    sampler.initialize(CategoricalPgAgent(model_kwargs=SMALL))
    return sampler


def evaluate_own() -> None:
    sampler = OwnEvaluation(RandomEnv, {}, batch_T=8, batch_B=4, eval_n_envs=1, eval_max_trajectories=1)
    MinibatchRlEval(A2C(), CategoricalPgAgent(model_kwargs=SMALL), sampler, n_steps=64).train()


def with_affinity(affinity: Any) -> None:
    MinibatchRl(A2C(), CategoricalPgAgent(), SerialSampler(CountingEnv, {}, 2, 1), n_steps=2, affinity=affinity)


new: Any = lambda Cls, *args, **kwargs: Cls(*args, **kwargs)  # noqa: E731  # past a type checker that knows better


def gone(name: str) -> str:
    return f"has no '{name}', as rlpyt 0.1 had. {SETTINGS[name]} See {PAGE}"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: set_up(OwnReplay(**REPLAY), DqnAgent(model_kwargs=SMALL), RandomEnv),
            r"initialize_replay_buffer set self.replay to <.*Mine object.*; expected an rlpyt.core.Replay",
        ),
        (
            lambda: set_up(OwnRows(**REPLAY), DqnAgent(model_kwargs=SMALL), RandomEnv),
            r"samples_to_buffer returned a Rows of 4: .*; expected an rlpyt.replays.SamplesToBuffer",
        ),
        (evaluate_own, r"OwnEvaluation.evaluate_agent returned \[.*; expected rlpyt.core.EvalResult\("),
        (lambda: to_device(None), "to_device was given None; expected rlpyt.utils.ComputeSettings"),
        (lambda: to_device(0), "to_device was given 0; expected rlpyt.utils.ComputeSettings"),
        (
            lambda: initialized(TrajInfoCls=OwnStatistics),
            r"TrajInfoCls made \{'Score': 0\} of type OwnStatistics; expected .* Derive the class",
        ),
        (
            lambda: new(MinibatchRl, 50, algo=A2C()),
            r"MinibatchRl: got 50 without a name; .* Write log_traj_window=50, which was",
        ),
        (
            lambda: OwnRunner(log_traj_window=50, algo=A2C()),
            "OwnRunner: MinibatchRl.__init__ got 'algo' by position and by name; .* are algo, agent, sampler, n_steps"
            rf".*super\(\).__init__.*{PAGE}",
        ),
        (lambda: new(OwnAgent), rf"^OwnAgent is abstract: .* agent_info \(Return the record.*make_dist.*{PAGE}"),
        (
            lambda: run(FromNothing(), OwnParameters(model_kwargs=SMALL)),
            "^OwnParameters.parameters returned a dictionary with the keys actor; expected an it",
        ),
        (lambda: new(Gaussian, dim=2, std=1), "^Gaussian has no argument 'std'. It has: dim"),
        (lambda: new(EpsilonGreedy, dim=2, epsilon=1), "^EpsilonGreedy has no argument 'epsilon'. It has: dim"),
        (lambda: with_affinity([dict(cuda_idx=0), dict(cuda_idx=1)]), "affinity: got .* for SyncRl, .* for AsyncRl"),
        (lambda: with_affinity(dict(optimizer=[], sampler={})), "affinity: got .* for SyncRl, .* for AsyncRl"),
        (lambda: new(IntBox, 0, 4, null_value=0), gone("null_value")),
        (lambda: new(FloatBox, 0, 1, shape=(2,), null_value=0), gone("null_value")),
        (lambda: new(GymEnvWrapper, CountingEnv(), act_null_value=0), gone("act_null_value")),
        (lambda: new(GymEnvWrapper, CountingEnv(), force_float32=0), gone("force_float32")),
        (lambda: new(IntBox, 0, 4, nonsense=0), "has no argument 'nonsense'. It has: "),
    ],
)
def test_what_rlpyt_0_1_did_otherwise_is_refused_with_what_to_do(call, said):
    with pytest.raises(TypeError, match=said):
        call()


# ---- attributes ----


@pytest.mark.parametrize(
    ("thing", "name", "said"),
    [
        (A2C(), "sampler_bs", "Use self.batch_spec.size."),
        (SAC(), "pi_optimizer", r'Use self.descents\["pi"\].optimizer.'),
        (SAC(), "_alpha", r"Use self.log_alpha.exp\(\)."),
        (DQN(), "update_itr_hyperparams", "Give the hyper-parameter a schedule, or set it in"),
        (RecurrentCategoricalPgAgent(), "prev_rnn_state", "agent.rnn_state is the state before the next step"),
        (RecurrentCategoricalPgAgent(), "advance_rnn_state", "agent.rnn_state is the state before the next step"),
        (DqnAgent(), "eps_sample", r"Use self.epsilon\(actor\)."),
        (SacAgent(), "q1_model", "q_model has the networks of all action values"),
        (SerialSampler(CountingEnv, {}, batch_T=1, batch_B=1), "samples_np", "obtain_samples returns the batch"),
        (Categorical(2), "log_likelihood", r"log_prob\(self, action, dist_info\) does that now"),
        (EpsilonGreedy(2), "set_epsilon", "Noise is an argument of sample."),
        (EpsilonGreedy(2), "epsilon", r"agent.epsilon\(actor\) is that of training."),
        (Gaussian(2), "set_std", "Noise is an argument of sample."),
    ],
)
def test_an_attribute_of_rlpyt_0_1_says_what_to_do(thing, name, said):
    with pytest.raises(AttributeError, match=rf"^{type(thing).__name__} has no '{name}'\. .*{said}.* See {PAGE}"):
        getattr(thing, name)
    assert not hasattr(thing, name)
    assert type(copy.copy(thing)) is type(thing)


def test_settings_of_an_atari_env_are_those_that_were_given():
    with pytest.raises(AttributeError, match=rf"^AtariEnv has no 'frame_skip'\. It is an argument of .* See {PAGE}"):
        AtariEnv.__new__(AtariEnv).frame_skip  # type: ignore[attr-defined]  # noqa: B018


def test_other_attributes_are_refused_by_python_or_asked_of_a_further_base():
    with pytest.raises(AttributeError, match="'DqnAgent' object has no attribute 'nonsense'"):
        DqnAgent().nonsense  # type: ignore[attr-defined]  # noqa: B018

    class Both(DqnAgent, nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            nn.Module.__init__(self)
            super().__init__()
            self.part = nn.Linear(1, 1)

    both: Any = Both()
    assert isinstance(both.part, nn.Linear)
    with pytest.raises(AttributeError, match="'Both' object has no attribute 'nonsense'"):
        both.nonsense  # noqa: B018


def test_no_class_has_an_attribute_that_is_said_to_be_gone():
    for name, attributes in OLD_ATTRIBUTES.items():
        assert not set(attributes) & set(dir(library_class(name))), name
        assert not set(attributes) & set(OLD_METHODS.get(name, ())), name


@pytest.mark.parametrize(
    ("Base", "name", "function", "said"),
    [
        (Categorical, "sample", lambda self, dist_info: None, r"Mine.sample\(self, dist_info\) does not fit"),
        (EpsilonGreedy, "sample", lambda self, q: None, r"Mine.sample\(self, q\) does not fit"),
        (
            Gaussian,
            "log_likelihood",
            lambda self, x, dist_info: None,
            "nothing calls it now. log_prob",
        ),
        (Gaussian, "sample_loglikelihood", lambda self, dist_info: None, "nothing calls it now. sample"),
    ],
)
def test_an_own_distribution_is_checked(Base, name, function, said):
    with pytest.raises(TypeError, match=said):
        check_class(type("Mine", (Base,), {name: function}))

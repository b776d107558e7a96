"""`compile=True`: the same numbers as without it, compiled as a whole and no more often than needed."""

from __future__ import annotations

import pickle
import re
from copy import deepcopy
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch._dynamo.utils import counters

from rlpyt.agents import CatDqnAgent, CategoricalPgAgent, DqnAgent
from rlpyt.algos import A2C, DQN, PPO, CategoricalDQN
from rlpyt.logging import logger_context, read_progress
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import SerialSampler
from rlpyt.utils.compute import ComputeSettings
from tests.algos.small_problems import RandomEnv, batches, run_of, set_up
from tests.algos.test_algo_state import CASES, DQN_KWARGS, learn, started, trained
from tests.pairs import others_nightly
from tests.replica_kit import run_replicas

COMPILED = ComputeSettings(compile=True)
WHOLE = (
    *("A2C", "PPO", "PQN Adam", "VTrace", "DQN n-step soft", "DQN Munchausen resets", "Rainbow", "QRDQN"),
    *("DDPG", "TD3", "SAC", "discrete SAC", "PPO two-hot", "DQN HL-Gauss", "SAC C51"),
    *("CrossQ", "XQC", "SimBa", "SimbaV2", "spectral norm"),
)
AS_THEY_ARE = ("IQN", "DroQ")
"""Their networks draw random numbers in a forward pass, which torch does not capture."""


@pytest.fixture
def traced(monkeypatch):
    """Run what torch would generate code of as it is: without a compiler, and in seconds."""

    def use() -> None:
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
        torch._dynamo.reset()
        counters.clear()

    yield use
    torch._dynamo.reset()


def check_networks(agent: Any, expected: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Hold all networks, targets and statistics of an agent to those of another one."""
    for module, reference in zip(agent.networks.modules(), expected.networks.modules(), strict=True):
        torch.testing.assert_close(dict(module.state_dict()), dict(reference.state_dict()), rtol=rtol, atol=atol)


@pytest.mark.parametrize("case", others_nightly([*WHOLE, *AS_THEY_ARE], ("A2C", "DQN n-step soft", "SAC", "IQN")))
def test_compiled_updates_give_the_same_numbers(case, traced):
    algo, agent, metrics = trained(case)
    traced()
    other_algo, other, other_metrics = trained(case, settings=COMPILED)
    assert other_algo.update_counter == algo.update_counter > 0
    of_case = dict.fromkeys(("TD3", "PPO", "PPO two-hot", "PQN Adam", "CrossQ", "XQC", "SimBa", "discrete SAC"), 2)
    assert counters["stats"]["unique_graphs"] == of_case.get(case, int(case in WHOLE))
    assert other_algo.compiled.is_on == (case in WHOLE)
    torch.testing.assert_close(other_metrics, metrics, rtol=1e-4, atol=1e-5)
    check_networks(other, agent)


SCHEDULED: dict[str, Any] = {  # the rows of an update change too: two graphs, of the first size and of any size
    "PPO": lambda: (
        PPO(epochs=2, linear_lr_schedule=True, entropy_loss_coeff="lin_0.5", value_clip=lambda step: 0.1 + step),
        CategoricalPgAgent(),
    ),
    "rate, clip of the Huber loss and a batch that grows": lambda: (
        DQN(
            **{**DQN_KWARGS, "batch_size": lambda step: 8 + step / 20},
            learning_rate=lambda step: 1e-3 / (1 + step),
            delta_clip=lambda step: 1.0 / (1 + step),
        ),
        DqnAgent(),
    ),
}


@pytest.mark.parametrize("name", others_nightly(SCHEDULED, list(SCHEDULED)[1:]))
def test_a_schedule_goes_on_and_nothing_is_compiled_again_for_it(name, traced, monkeypatch):
    monkeypatch.setitem(CASES, "scheduled", SCHEDULED[name])
    _, agent, metrics = trained("scheduled", n_itr=12)
    traced()
    _, other, other_metrics = trained("scheduled", settings=COMPILED, n_itr=12)
    assert counters["stats"]["unique_graphs"] == 2
    torch.testing.assert_close(other_metrics, metrics, rtol=1e-4, atol=1e-5)
    check_networks(other, agent)


def of_group(**settings: Any) -> Any:
    return lambda itr, algo: itr == 3 and algo.optimizer.param_groups[0].update(settings)


def train_in_turn(itr: int, algo: Any) -> None:
    """First all parameters, then none, then one of two in turn."""
    for i, x in enumerate(algo.agent.parameters()):
        x.requires_grad_(itr < 2 or (itr > 2 and i % 2 == itr % 2))


def add_what_no_loss_reaches(itr: int, algo: Any) -> None:
    if itr == 3:
        algo.optimizer.add_param_group(dict(params=[torch.nn.Parameter(torch.ones(3))], weight_decay=0.5))


def add_hook_of_module(itr: int, algo: Any) -> None:
    if itr == 3:
        next(x for x in algo.agent.model.modules() if isinstance(x, torch.nn.Linear)).register_forward_hook(
            lambda module, inputs, output: output / 2
        )


def add_hook_of_step(itr: int, algo: Any) -> None:
    if itr == 3:
        x = algo.optimizer.param_groups[0]["params"][0]

        def zero(*args: Any) -> None:
            x.grad = torch.zeros_like(x)

        algo.optimizer.register_step_pre_hook(zero)


CHANGES: dict[str, tuple[Any, int, bool]] = {
    # What a script does between two updates, graphs, and whether the updates after it are compiled.
    "lr_scale": (of_group(lr_scale=5.0), 2, True),
    "betas": (of_group(betas=(0.5, 0.9)), 2, True),
    "frozen in turn": (train_in_turn, 4, True),
    "a group that no loss reaches": (add_what_no_loss_reaches, 2, True),
    "rate": (lambda itr, algo: setattr(algo, "learning_rate", 1e-3 / (1 + itr)), 2, True),
    "clip": (lambda itr, algo: setattr(algo, "clip_grad_norm", float("inf") if itr == 5 else 1 / (1 + itr)), 2, True),
    "a hook of a module": (add_hook_of_module, 2, True),
    "a hook of the step": (add_hook_of_step, 1, False),
}


@pytest.mark.parametrize("name", others_nightly(CHANGES, ("a group that no loss reaches",)))
def test_what_a_script_changes_between_updates_counts_from_then_on(name, traced):
    def changed(settings: ComputeSettings | None) -> Any:
        algo, agent = A2C(), CategoricalPgAgent(model_kwargs=dict(hidden_sizes=8))
        collected = batches(started(algo, agent, settings=settings), 6)
        for itr in range(6):
            change(itr, algo)
            learn(algo, collected, range(itr, itr + 1))
        return algo, agent

    change, n_graphs, is_on = CHANGES[name]
    _, agent = changed(None)
    traced()
    algo, other = changed(COMPILED)
    check_networks(other, agent, rtol=1e-5, atol=1e-6)
    assert algo.compiled.is_on == is_on
    assert counters["stats"]["unique_graphs"] == n_graphs


class ChangesItsName(A2C):
    name = ""

    def update(self, batch: Any, hyper: Any) -> Any:
        self.name += "x"
        return super().update(batch, hyper)

    def loss(self, batch: Any, init_rnn_state: Any, hyper: Any) -> Any:
        loss, metrics = super().loss(batch, init_rnn_state, hyper)
        return loss / len(self.name), metrics


def test_what_is_compiled_too_often_runs_as_it_is_from_then_on(traced, monkeypatch, caplog):
    monkeypatch.setitem(CASES, "counts", lambda: (ChangesItsName(), CategoricalPgAgent()))
    _, agent, _ = trained("counts")
    traced()
    with torch._dynamo.config.patch(recompile_limit=1):
        algo, other, _ = trained("counts", settings=COMPILED)
    check_networks(other, agent, rtol=1e-5, atol=1e-6)
    assert algo.update_counter == 6
    assert "torch has compiled it 1 times and would go on" in caplog.text


@pytest.mark.nightly
@pytest.mark.skipif("isolate_recompiles" not in signature(torch.compile).parameters, reason="torch is older than 2.13")
def test_runs_of_one_process_do_not_use_up_the_compilations_of_the_next(traced):
    traced()
    for rate in (1e-3, 2e-3):
        algo, agent = A2C(learning_rate=rate), CategoricalPgAgent(model_kwargs=dict(hidden_sizes=8))
        collected = batches(started(algo, agent, settings=COMPILED), 1)
        with torch._dynamo.config.patch(recompile_limit=1):
            learn(algo, collected, range(1))
        assert algo.compiled.is_on
    assert counters["stats"]["unique_graphs"] == 2


def test_the_range_of_the_atoms_is_that_of_a_loaded_state(traced):
    """Compiled code does not look the range up; who changes it is heard all the same."""
    traced()
    kwargs: dict[str, Any] = dict(n_atoms=11, model_kwargs=dict(hidden_sizes=(16, 16)))
    algo, agent = CategoricalDQN(**DQN_KWARGS), CatDqnAgent(**kwargs)
    started(algo, agent, settings=COMPILED)
    state = {**agent.state_dict(), "V_range": [-1.0, 3.0]}
    agent.load_state_dict(state)
    q = torch.compile(agent.q_values)(torch.zeros(2, 3, 11))
    torch.testing.assert_close(q, torch.full((2, 3), 1.0))


class DictEnv(RandomEnv):
    """`RandomEnv` whose observation is a dictionary with one key that is given, and "other"."""

    def __init__(self, key: str) -> None:
        super().__init__()
        box = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.key, self.observation_space = key, spaces.Dict({key: box, "other": box})

    def _observation(self) -> Any:
        return {self.key: super()._observation(), "other": super()._observation()}


def trained_on_dictionaries(key: str, settings: ComputeSettings | None = None) -> Any:
    algo, agent = DQN(**DQN_KWARGS), DqnAgent()
    sampler = set_up(algo, agent, DictEnv, dict(key=key), settings=settings)
    learn(algo, batches(sampler, 6), range(6))
    return agent


def test_dictionary_observations_are_compiled(traced):
    """Also of keys that are no names."""
    agent = trained_on_dictionaries("1")
    traced()
    other = trained_on_dictionaries("1", COMPILED)
    check_networks(other, agent)


def test_a_copy_of_the_algorithm_has_no_compiled_code(traced):
    """As the process that appends to a replay gets one."""
    traced()
    algo, _, _ = trained("DQN", settings=COMPILED)
    assert algo.update_counter > 0
    algo.generator = algo.replay = algo.feed = algo.target = algo.descents = None
    for copy in (deepcopy(algo), pickle.loads(pickle.dumps(algo))):
        assert copy.loss.__self__ is copy
        assert not copy.compiled._compiled


class UsedByFew(A2C):
    """A2C with a parameter that the losses of some replicas reach."""

    users = 0

    def optim_initialize(self, rank: int = 0) -> None:
        self.own = torch.nn.Parameter(torch.ones(3))
        self.descents.add("model", [*self.agent.parameters(), self.own])

    def loss(self, batch: Any, init_rnn_state: Any, hyper: Any) -> Any:
        loss, metrics = super().loss(batch, init_rnn_state, hyper)
        return loss + (self.own.sum() if self.replicas.rank < self.users else 0.0), metrics


@pytest.mark.parametrize(
    ("users", "leaver"), others_nightly([(users, leaver) for users in range(3) for leaver in (None, 0)], [(1, 0)])
)
def test_a_parameter_that_few_replicas_use_moves_as_it_does_without_it(users, leaver, traced):
    """Also where one replica alone leaves compiled code after the first update, as a hook there makes it do."""

    def work(replicas: Any) -> Any:
        algo, agent = UsedByFew(OptimCls=torch.optim.AdamW), CategoricalPgAgent(model_kwargs=dict(hidden_sizes=8))
        algo.users, generator = users, torch.Generator().manual_seed(0)
        sampler = SerialSampler(RandomEnv, {}, 8, 4, max_decorrelation_steps=0)
        run = run_of(sampler, n_itr=3, seed=0, replicas=replicas, bootstrap_value=True)
        run = replace(run, example=sampler.initialize(agent, run))
        agent.to_device(ComputeSettings(compile=is_compiled))
        algo.initialize(agent, run)
        with torch.no_grad():
            for x in agent.parameters():
                x.copy_(0.3 * torch.randn(x.shape, generator=generator))
        collected = batches(sampler, 3)
        learn(algo, collected, range(1))
        if replicas.rank == leaver:
            algo.own.register_hook(lambda grad: grad)
        learn(algo, collected, range(1, 3))
        assert algo.compiled.is_on == (is_compiled and replicas.rank != leaver)
        return [x.detach() for x in (algo.own, *agent.parameters())]

    is_compiled = False
    expected = run_replicas(2, work)
    traced()
    is_compiled = True
    torch.testing.assert_close(run_replicas(2, work), expected, rtol=1e-5, atol=1e-6)
    assert bool((expected[0][0] == 1.0).all()) == (users == 0)


class ThreeSteps(A2C):
    """A2C with two compiled functions, of which one takes two steps that count, and a step outside of them."""

    def optim_initialize(self, rank: int = 0) -> None:
        super().optim_initialize(rank)
        self.own = torch.nn.Parameter(torch.ones(3))
        self.descents.add("own", [self.own])

    def update(self, batch: Any, hyper: Any) -> Any:
        self.descents.step("own", self.own.square().sum(), hyper)
        for function in (step_uncounted, step_twice_counted):
            metrics = self.compiled(function, self, batch.rows, batch.init_rnn_state, hyper)
        return metrics


def step_uncounted(algo: Any, batch: Any, init_rnn_state: Any, hyper: Any) -> None:
    algo.descents.step("model", algo.loss(batch, init_rnn_state, hyper)[0], hyper)


def step_twice_counted(algo: Any, batch: Any, init_rnn_state: Any, hyper: Any) -> Any:
    algo.gradient_step(algo.loss(batch, init_rnn_state, hyper)[0], hyper)
    loss, metrics = algo.loss(batch, init_rnn_state, hyper)
    return {**metrics, "gradNorm": algo.gradient_step(loss, hyper)}


def test_steps_count_in_compiled_functions_and_beside_them(traced, monkeypatch):
    monkeypatch.setitem(CASES, "own", lambda: (ThreeSteps(), CategoricalPgAgent()))
    algo, agent, _ = trained("own")
    traced()
    other_algo, other, _ = trained("own", settings=COMPILED)
    assert other_algo.compiled.is_on
    assert other_algo.update_counter == algo.update_counter == 12
    torch.testing.assert_close(other_algo.own, algo.own)
    check_networks(other, agent)


def test_the_log_says_how_often_a_run_compiled(traced, tmp_path):
    traced()
    counters["stats"]["unique_graphs"] = 100  # of what was compiled before
    sampler = SerialSampler(RandomEnv, {}, batch_T=8, batch_B=2, max_decorrelation_steps=0)
    with logger_context(tmp_path, run_ID=0, snapshot_mode="none"):
        MinibatchRl(A2C(), CategoricalPgAgent(), sampler, 64, 0, log_interval_steps=16, settings=COMPILED).train()
    assert list(read_progress(tmp_path / "run_0")["Diagnostics/Compilations"]) == [1, 1, 1, 1]


def test_a_second_run_without_it_compiles_nothing(traced):
    traced()
    algo, agent = CASES["A2C"]()
    started(algo, agent, settings=COMPILED)
    learn(algo, batches(started(algo, agent), 1), range(1))
    assert algo.update_counter == 1
    assert not counters["stats"]["unique_graphs"]


@pytest.mark.parametrize("case", others_nightly(["A2C", "DQN", "SAC"], ("DQN",)))
def test_what_one_run_has_saved_another_goes_on_from_compiled_or_not(case, traced):
    """The state of an optimiser is torch's own in both, and compiled code takes over the tensors that are loaded."""
    traced()
    torch.manual_seed(0)
    runs = [CASES[case]() for _ in range(3)]
    collected = [batches(started(*run, settings=s), 8) for run, s in zip(runs, (COMPILED, None, COMPILED), strict=True)]
    (one, agent), *others = runs
    learn(one, collected[0], range(4))
    for algo, other in others:
        learn(algo, collected[0], range(3))  # it has compiled, and other moments than those that are loaded
        algo.load_state_dict(deepcopy(one.state_dict()))
        other.load_state_dict(agent.state_dict())
    for algo, _ in runs:
        learn(algo, collected[0], range(4, 8))
    for algo, other in others:
        assert algo.update_counter == one.update_counter
        check_networks(other, agent, rtol=1e-5, atol=1e-6)
        for mine, theirs in zip(algo.descents.values(), one.descents.values(), strict=True):
            state, expected = mine.optimizer.state_dict(), theirs.optimizer.state_dict()
            torch.testing.assert_close(state["state"], expected["state"], rtol=1e-4, atol=1e-5)
            assert [group["lr"] for group in state["param_groups"]] == [x["lr"] for x in expected["param_groups"]]


class OwnUpdate(A2C):
    def update(self, batch: Any, hyper: Any) -> Any:
        loss, metrics = self.loss(batch.rows, batch.init_rnn_state, hyper)
        return {**metrics, "gradNorm": self.gradient_step(loss, hyper)}


class KeepsItsHyper(A2C):
    def update(self, batch: Any, hyper: Any) -> Any:
        self.now = hyper
        return self.compiled(step_without_hyper, self, batch.rows)


def step_without_hyper(algo: Any, batch: Any) -> Any:
    loss, metrics = algo.loss(batch, None, algo.now)
    return {**metrics, "gradNorm": algo.gradient_step(loss, algo.now)}


class ReadsANumber(A2C):
    def loss(self, batch: Any, init_rnn_state: Any, hyper: Any) -> Any:
        loss, metrics = super().loss(batch, init_rnn_state, hyper)
        return loss * (2.0 if loss.item() > 0 else 1.0), metrics


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (lambda: A2C(OptimCls=torch.optim.RMSprop), "only steps of Adam and AdamW can be, .* is a RMSprop"),
        (lambda: A2C(log_loss_after=True), "every loss is asked for a second time"),
        (OwnUpdate, "it does not call self.compiled"),
        (KeepsItsHyper, "what self.compiled was given has no hyper-parameters"),
        (ReadsANumber, "torch cannot capture it: .*"),
    ],
)
def test_an_update_that_cannot_be_compiled_runs_as_it_is_and_a_warning_says_why(
    case, reason, traced, monkeypatch, caplog
):
    monkeypatch.setitem(CASES, "own", lambda: (case(), CategoricalPgAgent()))
    algo, agent, _ = trained("own")
    traced()
    other_algo, other, _ = trained("own", settings=COMPILED)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 1
    assert re.search(f"compile is True, and its update runs as it is: {reason}", said[0])
    assert other_algo.update_counter == algo.update_counter == 6
    assert not counters["stats"]["unique_graphs"]
    check_networks(other, agent, rtol=0, atol=0)


def test_what_cannot_be_compiled_is_refused():
    with pytest.raises(ValueError, match="A2C: the settings have compile=True, and its agent is recurrent"):
        trained("A2C LSTM", settings=COMPILED)
    with pytest.raises(ValueError, match=r"DQN: .*the observations or actions have the keys \['ale.lives'\]"):
        trained_on_dictionaries("ale.lives", COMPILED)


@pytest.mark.parametrize("named", [None, "no-such-compiler"])
def test_a_machine_without_the_compiler_is_refused(monkeypatch, named):
    """torch takes no other one in place of the one that is named."""
    if named:
        monkeypatch.setenv("CXX", named)
    else:
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ValueError, match=rf"no C\+\+ compiler '{re.escape(named or 'g++')}'"):
        ComputeSettings(compile=True)


@pytest.mark.parametrize(("folder", "kind"), [("/home/me/my work/torch", ValueError), ("/home/me/torch", RuntimeError)])
def test_a_blank_in_the_folder_of_torch_is_told_in_one_line(monkeypatch, folder, kind):
    algo, agent = CASES["A2C"]()
    collected = batches(started(algo, agent, settings=COMPILED), 1)

    def fails(*args, **kwargs):
        raise RuntimeError("C++ compile error\n" + "a line of the linker\n" * 40 + "ld: cannot find -ltorch")

    monkeypatch.setattr(torch, "compile", lambda plain, **options: fails)
    monkeypatch.setattr("rlpyt.algos.compiled_update._TORCH", folder)
    with pytest.raises(kind) as raised:
        algo.optimize_agent(0, collected[0])
    text = str(raised.value)
    assert ("\n" not in text and folder in text) == (kind is ValueError)


@pytest.mark.nightly
@pytest.mark.skipif(" " in torch.__file__, reason="torch does not quote the blank in its folder for the linker")
@pytest.mark.parametrize("case", WHOLE)
def test_generated_code_gives_the_same_numbers(case):
    """After 26 updates of algorithms without a replay, 208 of PPO, 75 to 100 of those with one."""
    _, agent, _ = trained(case, n_itr=26)
    torch._dynamo.reset()
    _, other, _ = trained(case, settings=COMPILED, n_itr=26)
    torch._dynamo.reset()
    # A power iteration starts from the one before, and so makes more of a difference in rounding than layers do.
    check_networks(other, agent, rtol=0.0, atol=5e-6 if case == "spectral norm" else 1e-6)
    for module, reference in zip(other.networks.modules(), agent.networks.modules(), strict=True):
        parameters, expected = (dict(x.named_parameters()) for x in (module, reference))
        torch.testing.assert_close(parameters, expected, rtol=0.0, atol=1e-6)

"""What a user of rlpyt 0.1 meets: the old names, the old methods and settings, and scripts as its examples were."""

from __future__ import annotations

import importlib
import inspect
import pickle
import sys
import textwrap
import warnings
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

import rlpyt
from rlpyt import agents, algos, distributions, envs, replays, runners, samplers
from rlpyt.compat.functions import iterate_mb_idxs, save__init__args, update_state_dict
from rlpyt.compat.methods import CALLED_WITH, OLD_ARGUMENTS, OLD_METHODS
from rlpyt.compat.names import NAMES, SETTINGS, OldModule
from rlpyt.envs import EnvSpaces
from rlpyt.old_rlpyt import ON_OLD_PATHS, PAGE, check_class
from rlpyt.utils.affinity import AttrDict
from tests.algos.small_problems import RandomEnv, batches, set_up
from tests.markdown import ROOT
from tests.toy_envs import CountingEnv

ENTRIES = [(module, name, where) for module, names in NAMES.items() for name, where in names.items()]
MOVED = [(module, name, where) for module, name, where in ENTRIES if " " not in where]
GONE = [(module, name) for module, name, where in ENTRIES if " " in where]

ROOMS = (agents, algos, distributions, envs, replays, runners, samplers)


def library_class(name: str) -> type:
    [found] = {vars(room)[name] for room in ROOMS if name in vars(room)}
    return found


# ---- names ----


def imported(lines: str) -> SimpleNamespace:
    names: dict[str, Any] = {}
    exec(textwrap.dedent(lines), names)
    return SimpleNamespace(**{name: thing for name, thing in names.items() if not name.startswith("__")})


def test_an_old_name_is_the_new_thing_and_the_warning_tells_which():
    for module, name, new in MOVED:
        new_module, _, new_name = new.rpartition(".")
        if not isinstance(here := importlib.import_module(module), OldModule) and hasattr(here, name):
            assert getattr(here, name) is getattr(importlib.import_module(new_module), new_name)
            continue  # a module of today, which has the name, or was given it by the first line that asked for it
        with pytest.warns(DeprecationWarning, match=rf"Write: from {new_module} import {new_name}$") as caught:
            found = getattr(imported(f"from {module} import {name}"), name)
        assert found is getattr(importlib.import_module(new_module), new_name)
        assert {warning.filename for warning in caught} == {"<string>"}, "the warning points at the user's line"


def test_an_old_name_of_a_module_that_was_imported_warns_too():
    dqn_agent, seed = map(importlib.import_module, ("rlpyt.agents.dqn.dqn_agent", "rlpyt.utils.seed"))
    with pytest.warns(DeprecationWarning, match="from rlpyt.agents import DqnAgent$"):
        assert dqn_agent.DqnAgent is agents.DqnAgent
    with pytest.warns(DeprecationWarning, match="from rlpyt.utils.seeds import make_seed$"):
        seed.make_seed()
    with pytest.warns(DeprecationWarning, match="from rlpyt.algos import A2C$"):
        exec("from rlpyt.algos.pg.a2c import *", {})


def test_a_name_without_a_counterpart_says_what_to_do():
    for module, name in GONE:
        text = f"^{module}.{name} of rlpyt 0.1 has no counterpart: .*{PAGE}"
        with pytest.raises(ImportError, match=text):
            exec(f"from {module} import {name}", {})
        found = importlib.import_module(module)
        with pytest.raises(AttributeError, match=text if isinstance(found, OldModule) else "has no attribute"):
            getattr(found, name)


class NamedLike:
    """An object that pickle finds by its name alone, in whatever module has it."""

    def __init__(self, name: str) -> None:
        self.name = name
        vars(self)["__module__"] = None

    def __reduce__(self) -> str:
        return self.name


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_who_looks_through_all_modules_meets_no_error_and_no_warning(dumps, monkeypatch):
    for name in ("SyncWorker", "OptInfo", "zeros"):  # gone, gone in some modules
        thing = NamedLike(name)
        # The last module of all, so that the old ones are asked before it.
        module = ModuleType("the_last_module")
        setattr(module, name, thing)
        monkeypatch.setitem(sys.modules, "the_last_module", module)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*rlpyt 0.1")  # modules of numpy warn, too
            assert b"the_last_module" in dumps(thing)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("from rlpyt.replays.non_sequence.uniform import UniformReplayBuffer", "prioritized_replay"),
        ("from rlpyt.utils.logging.console import mkdir_p", "for the rest write your own"),
        ("from rlpyt.algos.dqn.dqn import Nonsense", "cannot import name 'Nonsense'"),
        ("from rlpyt.ul.algos.ul_for_rl.augmented_cpc import AugmentedContrastivePredictive", "no counterpart"),
        ("import rlpyt.projects.safe", "rlpyt.projects of rlpyt 0.1 has no counterpart"),
        ("from rlpyt.experiments.configs.atari.dqn.atari_dqn import configs", "copy the old file beside"),
        ("from rlpyt import nonsense", "cannot import name 'nonsense' from 'rlpyt'"),
    ],
)
def test_the_import_line_itself_is_refused_with_the_reason(line, told):
    with pytest.raises(ImportError, match=told):
        exec(line, {})


@pytest.mark.parametrize("folder", ["projects", "agents.pg"])
def test_own_files_in_a_folder_of_an_old_name_need_no_init_file(folder, tmp_path, monkeypatch):
    for package in (rlpyt, agents):
        own = tmp_path.joinpath(*package.__name__.split(".")[1:])
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(own)])
    place = tmp_path.joinpath(*folder.split("."))
    (place / "__pycache__").mkdir(parents=True)
    (place / "mine.py").write_text("x = 1")
    importlib.invalidate_caches()
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if f"{name}.".startswith(f"rlpyt.{folder}.")}
    try:
        assert importlib.import_module(f"rlpyt.{folder}.mine").x == 1
    finally:
        for name in [name for name in sys.modules if f"{name}.".startswith(f"rlpyt.{folder}.")]:
            del sys.modules[name]
        sys.modules.update(before)


def test_the_modules_that_old_paths_lead_through_are_listed():
    steps = {".".join(words[:n]) for path in NAMES if (words := path.split(".")) for n in range(2, len(words) + 1)}
    root = Path(rlpyt.__file__).parents[1]
    assert {name for name in steps if root.joinpath(*name.split(".")).with_suffix(".py").exists()} == ON_OLD_PATHS


def test_a_pickle_made_with_the_old_path_loads():
    old = b"crlpyt.samplers.collections\nBatchSpec\n(I3\nI4\ntR."
    with pytest.warns(DeprecationWarning, match="from rlpyt.samplers import BatchSpec$"):
        spec = pickle.loads(old)
    assert spec == samplers.BatchSpec(3, 4)
    assert b"rlpyt.types" in pickle.dumps(spec)


# ---- aliases and small functions ----


def test_collectors_and_agents_go_by_their_old_names_too():
    for name in ("CpuResetCollector", "GpuResetCollector"):
        assert vars(samplers)[name] is samplers.Collector
    for name in ("CpuWaitResetCollector", "GpuWaitResetCollector"):
        assert vars(samplers)[name] is samplers.WaitResetCollector
    for name in ("SerialEvalCollector", "CpuEvalCollector", "GpuEvalCollector"):
        assert vars(samplers)[name] is samplers.Evaluator
    for name in [name for name in agents.__all__ if "Alternating" in name]:
        assert vars(agents)[name] is vars(agents)[name.replace("Alternating", "")]


def test_the_mixins_tell_a_model_what_they_told_it():
    image = EnvSpaces(Box(0, 255, (4, 8, 9), np.uint8), Discrete(5))
    assert agents.AtariMixin().make_env_to_model_kwargs(image) == {"image_shape": (4, 8, 9), "output_size": 5}
    vector = EnvSpaces(Box(-1, 1, (3,)), Box(-1, 1, (2,)))
    assert agents.MujocoMixin().make_env_to_model_kwargs(vector) == {"observation_shape": (3,), "action_size": 2}


def test_the_replay_has_its_old_name_too():
    class Mine(algos.DQN):
        def initialize_replay_buffer(self, *args: Any, **kwargs: Any) -> None:
            super().initialize_replay_buffer(*args, **kwargs)
            replay = vars(self).pop("replay")
            self.replay_buffer = replay

    algo: Any = Mine(min_steps_learn=64, replay_size=600, batch_size=8)
    collected = batches(set_up(algo, agents.DqnAgent(), RandomEnv), 2)
    assert algo.replay is algo.replay_buffer
    other = deepcopy(algo.replay)
    algo.replay_buffer = other  # as a script of rlpyt 0.1 may
    algo.append(0, collected[0])
    assert algo.replay is other
    assert len(other) == 32


def test_save__init__args_sets_what_a_subclass_and_its_base_were_given():
    class Base:
        def __init__(self, a: int, b: int = 2) -> None:
            save__init__args(locals())

    class Derived(Base):
        a = 0  # the default of a class is no attribute of the object

        def __init__(self, a: int, c: int, b: int = 3) -> None:
            save__init__args(locals())
            super().__init__(7)

    assert vars(Derived(1, 5)) == {"a": 1, "b": 3, "c": 5}
    private = SimpleNamespace(a=1)
    save__init__args({"self": private, "a": 2})
    assert vars(private) == {"a": 1}


def test_attr_dict_copies_what_is_an_attr_dict_within():
    settings = AttrDict(a=1, inner=AttrDict(b=2))
    copy = settings.copy()
    copy.inner.b = copy.c = 3
    assert (settings["inner"]["b"], "c" in settings, copy["c"]) == (2, False, 3)
    with pytest.raises(AttributeError, match="no entry 'd'; it has 'a', 'inner'"):
        settings.d  # noqa: B018


def test_minibatches_are_whole_and_disjoint():
    assert [list(range(10))[rows] for rows in iterate_mb_idxs(10, 4)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    shuffled = np.concatenate(list(iterate_mb_idxs(10, 5, shuffle=True)))
    assert sorted(shuffled) == list(range(10))


def test_update_state_dict_mixes_floats_and_copies_the_rest():
    model, other = nn.BatchNorm1d(1), nn.BatchNorm1d(1)
    nn.init.constant_(other.weight, 3.0)
    other.load_state_dict({**other.state_dict(), "num_batches_tracked": torch.tensor(5)})
    update_state_dict(model, other.state_dict(), tau=0.25)
    assert (model.weight.item(), model.state_dict()["num_batches_tracked"].item()) == (1.5, 5)
    update_state_dict(model, other.state_dict())
    assert torch.equal(model.weight, other.weight)


# ---- methods ----


def derivable(base: str) -> type:
    """Return a class to derive from: the settings of a replay are no algorithm by themselves."""
    return algos.OffPolicyAlgo if base == "ReplaySettings" else library_class(base)


@pytest.mark.parametrize(("base", "name"), [(base, name) for base, names in OLD_METHODS.items() for name in names])
def test_a_method_that_nothing_calls_is_refused(base, name):
    Mine = type("Mine", (derivable(base),), {name: lambda self: None})
    with pytest.raises(TypeError, match=rf"^Mine.{name}: rlpyt 0.1 .* nothing calls it now. .* rename it. See {PAGE}"):
        check_class(Mine)


def test_the_class_of_every_part_is_checked_before_a_run():
    def old(Base: type, name: str) -> Any:
        return type("Mine", (Base,), {name: lambda self: None})

    sampler = partial(samplers.SerialSampler, CountingEnv, {}, batch_T=2, batch_B=1)
    spaces = EnvSpaces(Box(-1, 1, (3,)), Discrete(2))

    class OwnDistribution(agents.CategoricalPgAgent):
        def make_distribution(self, env_spaces: EnvSpaces) -> Any:
            return old(distributions.Categorical, "log_likelihood")(2)

    def with_part(**part: Any) -> None:
        set_up(algos.DQN(batch_size=4, replay_size=64, min_steps_learn=8, **part), agents.DqnAgent(), RandomEnv)

    calls = {
        "process_returns": lambda: old(algos.A2C, "process_returns")(),
        "toggle_alt": lambda: old(agents.DqnAgent, "toggle_alt")(),
        "log_diagnostics": lambda: old(runners.MinibatchRl, "log_diagnostics")(),
        "_get_n_envs_lists": lambda: old(samplers.SerialSampler, "_get_n_envs_lists")(CountingEnv, {}),
        "start_envs": lambda: sampler(CollectorCls=old(samplers.Collector, "start_envs")),
        "collect_evaluation": lambda: sampler(eval_CollectorCls=old(samplers.Evaluator, "collect_evaluation")),
        "log_likelihood": lambda: OwnDistribution().initialize(spaces),
        "_life_reset": lambda: old(envs.AtariEnv, "_life_reset")(),
        "update_batch_priorities": lambda: with_part(ReplayCls=old(replays.ReplayBuffer, "update_batch_priorities")),
        "draw_places": lambda: with_part(IndexCls=old(replays.UniformIndex, "draw_places")),
        "read": lambda: with_part(ReadingCls=old(replays.Transitions, "read")),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=rf"^Mine\.{name}(: rlpyt 0.1 .* nothing calls it|\(self\) does not fit)"):
            call()


@pytest.mark.parametrize(
    ("base", "name", "argument"),
    [(base, name, a) for base, names in OLD_ARGUMENTS.items() for name, old in names.items() for a in old.split()],
)
def test_an_argument_that_only_rlpyt_0_1_gave_is_refused(base, name, argument):
    namespace: dict[str, Any] = {}
    exec(f"def {name}(self, *args, {argument}=None): pass", namespace)
    with pytest.raises(TypeError, match=rf"^Mine.{name}\(.*{argument}, which rlpyt 0.1 gave.* Expected def {name}\("):
        check_class(type("Mine", (derivable(base),), {name: namespace[name]}))


@pytest.mark.parametrize(
    ("base", "method"),
    [
        ("DQN", "loss(self, samples)"),
        ("PPO", "loss(self, agent_inputs, action, return_, advantage, valid, old_dist_info, init_rnn_state=None)"),
        ("DQN", "initialize_replay_buffer(self, examples, batch_spec, async_=False)"),
        ("DqnAgent", "to_device(self, cuda_idx)"),
        ("DqnAgent", "initialize(self, env_spaces, share_memory=False, global_B=1, env_ranks=None)"),
        ("SacAgent", "pi(self, observation, prev_action, prev_reward)"),
        ("MinibatchRlEval", "log_diagnostics(self, itr, eval_traj_infos, eval_time)"),
        ("MinibatchRl", "log_diagnostics(self, itr, prefix='Diagnostics/')"),
        ("Collector", "collect_batch(self, agent_inputs, traj_infos, itr)"),
        ("Collector", "__init__(self, rank, envs, samples_np, batch_T, TrajInfoCls, agent=None)"),
        ("CpuSampler", "initialize(self, agent, affinity=None, seed=None, bootstrap_value=False)"),
    ],
)
def test_an_override_with_the_arguments_of_rlpyt_0_1_is_refused_with_the_form_of_today(base, method):
    name = method.split("(")[0]
    namespace: dict[str, Any] = {}
    exec(f"def {method}: pass", namespace)
    with pytest.raises(TypeError, match=rf"^Mine.{name}\(self.*does not fit .* Expected def {name}\(self, "):
        check_class(type("Mine", (derivable(base),), {name: namespace[name]}))


@pytest.mark.parametrize(
    ("base", "method"),
    [
        ("PPO", "initialize(self, *args, **kwargs)"),
        ("PPO", "loss(self, rows, state, values)"),
        ("DQN", "samples_to_buffer(self, samples)"),
        ("DQN", "optimize_agent(self, itr, samples=None, sampler_itr=None)"),
        ("DqnAgent", "initialize(self, env_spaces)"),
        ("DqnAgent", "step(self, observation, prev_action, prev_reward)"),
        ("DqnAgent", "mode_of_my_own(self, a, b, c)"),
        ("MinibatchRl", "_log_infos(self, traj_infos=None)"),
    ],
)
def test_an_override_that_can_be_called_is_taken(base, method):
    name = method.split("(")[0]
    namespace: dict[str, Any] = {}
    exec(f"def {method}: pass", namespace)
    check_class(type("Mine", (library_class(base),), {name: namespace[name]}))


def test_a_method_in_a_mixin_counts_if_it_overrides_and_only_then():
    class Mixin:
        def process_returns(self, samples: Any) -> None:
            pass

        def loss(self, samples: Any) -> None:
            pass

    with pytest.raises(TypeError, match=r"Mine.process_returns: .* Override loss_inputs"):
        check_class(type("Mine", (Mixin, algos.A2C), {}))
    # torch's parameters(recurse) and its kind come after the agent's: nothing is overridden.
    check_class(type("Mine", (agents.DqnAgent, nn.Module), {}))


def test_the_library_s_own_classes_fit_their_tables():
    for table in (OLD_METHODS, OLD_ARGUMENTS, CALLED_WITH):
        for base, names in table.items():
            owners = library_class(base).__mro__[:-1]
            found = {name: [vars(c)[name] for c in owners if name in vars(c)] for name in names}
            if table is OLD_METHODS:  # what an agent holds is under the name of a method of before
                assert not any(inspect.isfunction(thing) for things in found.values() for thing in things)
            else:
                assert all(found.values())


# ---- settings ----


@pytest.mark.parametrize(
    ("AlgoCls", "name"),
    [
        *((algos.DDPG, "bootstrap_timelimit"), (algos.TD3, "mu_learning_rate"), (algos.SAC, "reparameterize")),
        *((algos.R2D1, "input_priority_shift"), (algos.DQN, "ReplayBufferCls")),
    ],
)
def test_a_setting_without_a_choice_is_refused_with_what_to_do(AlgoCls, name):
    with pytest.raises(TypeError, match=name) as error:
        AlgoCls(**{name: 1})
    assert SETTINGS[name] in str(error.value)
    assert "Did you mean" not in str(error.value)


def test_hyper_parameters_by_position_are_refused():
    with pytest.raises(TypeError, match=r"A2C: got 2 hyper-parameters without a name, 0.99 first; expected each by"):
        algos.A2C(0.99, 1e-3)  # type: ignore[call-arg]


# ---- the page ----


def test_the_page_has_the_arguments_of_overrides_that_have_changed():
    text = (ROOT / PAGE).read_text()
    changed: tuple[dict[str, dict[str, Any]], ...] = (OLD_ARGUMENTS, CALLED_WITH)
    for table in changed:
        names = [name for methods in table.values() for name in methods]
        assert all(f"`{name}(" in text for name in names)

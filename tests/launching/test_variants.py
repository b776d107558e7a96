"""Variants of a configuration: levels, the grid that they make, the file, and the change of a configuration."""

from __future__ import annotations

import json
from math import inf

import gymnasium
import numpy as np
import pytest

from rlpyt.agents import PgAgent
from rlpyt.algos import PPO
from rlpyt.launching import VariantLevel, load_variant, make_variants, save_variant, update_config
from rlpyt.launching.variants import Variant, check_grid
from rlpyt.runners import MinibatchRl
from rlpyt.samplers import SerialSampler
from rlpyt.settings import all_settings, arguments_of

LR = VariantLevel([("algo", "learning_rate")], [(1e-3,), (3e-4,)], ["lr_1e-3", "lr_3e-4"])
SHAPE = VariantLevel([("sampler", "batch_T"), ("sampler", "batch_B")], [(8, 4), (16, 2)], ["T8_B4", "T16_B2"])


def runner():
    sampler = SerialSampler(
        EnvCls=gymnasium.make, env_kwargs=dict(id="CartPole-v1"), batch_T=8, batch_B=2, eval_env_kwargs=dict(id="X")
    )
    return MinibatchRl(PPO(learning_rate=1e-2), PgAgent(), sampler, n_steps=100)


# ---- levels and grids ----


def test_levels_are_crossed_and_the_first_is_the_outermost():
    variants, log_dirs = make_variants(LR, SHAPE)
    assert log_dirs == ["lr_1e-3/T8_B4", "lr_1e-3/T16_B2", "lr_3e-4/T8_B4", "lr_3e-4/T16_B2"]
    assert variants[1] == {"algo": {"learning_rate": 1e-3}, "sampler": {"batch_T": 16, "batch_B": 2}}
    assert variants[2] == {"algo": {"learning_rate": 3e-4}, "sampler": {"batch_T": 8, "batch_B": 4}}


def test_levels_that_change_one_part_keep_both_changes_and_points_share_no_value():
    level = VariantLevel([("algo", "optim_kwargs")], [({"betas": [8]},)], ["small"])
    first, second = make_variants(LR, level)[0]
    assert first == {"algo": {"learning_rate": 1e-3, "optim_kwargs": {"betas": [8]}}}
    first["algo"]["optim_kwargs"]["betas"].append(9)
    assert second["algo"]["optim_kwargs"] == {"betas": [8]}


@pytest.mark.parametrize(
    ("keys", "values", "names", "text"),
    [
        ([], [], [], "has no keys"),
        ([("a",)], [], [], "has no values"),
        (["a"], [(1,)], ["x"], r"Write \('a',\)"),
        ([("a",)], [(1,)], ["b/" + "ü" * 128], "longer than 255 bytes"),
        ([("a",), ("a",)], [(1, 2)], ["x"], "settings a and a is the other"),
        ([("a",), ("a", "b")], [(None, 2)], ["x"], r"settings a and a\.b .* inside of it"),
        ([("a", "b"), ("a",)], [(1, {"b": 2})], ["x"], r"settings a\.b and a .* inside of it"),
        ([("a",)], [(1, 2)], ["x"], "expected 1 value"),
        ([("a",)], [1], ["x"], "Write it as a tuple"),
        ([("a",)], ["text"], ["x"], "Write it as a tuple"),
        ([("a",)], [(1,), (2,)], ["x"], "1 dir_names for 2"),
        ([("a",)], [(1,)], [""], "name of a folder"),
    ],
)
def test_a_wrong_level_is_refused(keys, values, names, text):
    with pytest.raises((ValueError, TypeError), match=text):
        VariantLevel(keys, values, names)


def test_a_setting_in_two_levels_is_refused_also_where_one_is_inside_the_other():
    whole = VariantLevel([("algo",)], [({},)], ["algo"])
    for other in (LR, whole):
        with pytest.raises(ValueError, match=r"make_variants: one of the settings algo\..* Put both into one level"):
            make_variants(LR, other)
    with pytest.raises(ValueError, match="the grid is empty"):
        make_variants()


@pytest.mark.parametrize(
    ("variants", "log_dirs", "runs_args", "text"),
    [
        ([{"x": 1}, {"x": 1}], ["a", "b"], None, "'a' and 'b' are the same variant"),
        ([{}, {}], ["a", "b"], [("--env", 1), ("--env", "1")], "'a' and 'b' are the same variant"),
        ([{"x": 1}, {"x": 2}], ["a", "a"], None, "two variants have the folder 'a'"),
        ([{"x": 1}, {"x": 2}], ["a", "b/../a"], None, "two variants have the folder 'a'"),
        ([{"x": 1}], ["/abs"], None, "expected a folder in that of the grid"),
        ([{"x": 1}], ["a/../../b"], None, "expected a folder in that of the grid"),
        ([{"x": 1}, {"x": 2}], ["a"], None, "2 variants and 1 log_dirs"),
        ([], [], None, "0 variants"),
        ([{"x": PPO}], ["a"], None, "Let the script make other values"),
        ([{"x": [{1: 2}]}], ["a"], None, "the key 1 is no text"),
    ],
)
def test_two_points_of_a_grid_may_not_be_mixed(variants, log_dirs, runs_args, text):
    with pytest.raises((ValueError, TypeError), match=text):
        check_grid(variants, log_dirs, runs_args)


def test_points_differ_by_type_by_large_numbers_and_by_their_arguments():
    check_grid([{}, {}], ["a", "b"], [("--env", "pong"), ("--env", "breakout")])
    check_grid([{"x": 1}, {"x": True}, {"x": 2**60}, {"x": 2**60 + 1}], ["a", "b", "c", "d"])


# ---- the file ----


def test_a_variant_comes_back_from_its_file_with_numbers_of_numpy_as_numbers(tmp_path):
    variant: Variant = {"algo": {"clip_grad_norm": inf, "learning_rate": 1e-3}, "agent": None}
    numbers = {"x": np.int64(3), "y": [np.float32(0.5)], "z": np.bool_(True)}
    save_variant(variant | numbers, tmp_path / "deep" / "dir")
    assert load_variant(tmp_path / "deep" / "dir") == variant | {"x": 3, "y": [0.5], "z": True}
    for value, text in ((object(), "of type object"), (np.arange(2), r"got array\(\[0, 1\]\) of type ndarray")):
        with pytest.raises(TypeError, match=f"{text}; expected numbers"):
            save_variant({"x": value}, tmp_path)


def test_a_missing_or_damaged_file_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected the log_dir of a run"):
        load_variant(tmp_path)
    for text, message in (('{"a": ', "is no JSON"), ("[1]", "expected a dictionary")):
        (tmp_path / "variant_config.json").write_text(text)
        with pytest.raises(ValueError, match=message):
            load_variant(tmp_path)


# ---- changes ----


def test_a_runner_is_changed_at_any_depth_and_stays_as_it_was():
    old = runner()
    new = update_config(
        old,
        {
            "n_steps": 500,
            "algo": {"learning_rate": 1e-4},
            "agent": {"model_kwargs": {"hidden_sizes": [3]}},
            "sampler": {"env_kwargs": {"id": "Acrobot-v1", "new": 1}, "eval_env_kwargs": None},
        },
    )
    assert (new.n_steps, new.algo.learning_rate, new.agent.model_kwargs) == (500, 1e-4, {"hidden_sizes": [3]})
    assert new.sampler.env_kwargs == {"id": "Acrobot-v1", "new": 1}
    assert (old.n_steps, old.algo.learning_rate, old.sampler.env_kwargs) == (100, 1e-2, {"id": "CartPole-v1"})


def test_two_configurations_share_no_part_and_no_dictionary():
    old = runner()
    new = update_config(old, {})
    assert all(getattr(new, name) is not getattr(old, name) for name in ("algo", "agent", "sampler"))
    assert new.sampler.env_kwargs is not old.sampler.env_kwargs
    assert all_settings(new).keys() == all_settings(old).keys()
    variant: Variant = {"agent": {"model_kwargs": {"hidden_sizes": [8]}}, "sampler": {"env_kwargs": {"sizes": [1]}}}
    new = update_config(update_config(old, variant), variant)
    new.agent.model_kwargs["hidden_sizes"].append(9)
    new.sampler.env_kwargs["sizes"].append(2)
    assert variant == {"agent": {"model_kwargs": {"hidden_sizes": [8]}}, "sampler": {"env_kwargs": {"sizes": [1]}}}
    assert all_settings(new.algo) == all_settings(old.algo)


def test_what_is_not_set_keeps_following_from_what_is():
    assert arguments_of(update_config(PPO(learning_rate=1e-3), {"epochs": 3})) == {"learning_rate": 1e-3, "epochs": 3}


@pytest.mark.parametrize(
    ("variant", "text"),
    [
        ({"sampler": {"env_kwargs": [1]}}, r"MinibatchRl\.sampler\.env_kwargs is a dictionary; got \[1\]"),
        ({"alg": {}}, "update_config: MinibatchRl .*Did you mean algo"),
        ({"algo": {"lr": 1}}, r"MinibatchRl\.algo \(PPO\) has no argument 'lr'\. Did you mean learning_rate"),
    ],
)
def test_a_change_that_does_not_fit_a_part_is_refused(variant, text):
    with pytest.raises(TypeError, match=text):
        update_config(runner(), variant)


def test_a_dictionary_is_changed_as_rlpyt_0_1_did():
    config = dict(algo=dict(learning_rate=1, discount=0.9), runner=dict(n_steps=3), name="x", env=dict())
    new = update_config(config, {"algo": {"discount": 0.5}, "name": "y"})
    assert new == dict(algo=dict(learning_rate=1, discount=0.5), runner=dict(n_steps=3), name="y", env=dict())
    assert config["algo"] == dict(learning_rate=1, discount=0.9)
    assert new["runner"] is not config["runner"]
    unknown: list[Variant] = [{"alg": {}}, {"algo": {"learnin_rate": 2}}, {"env": {"id": "x"}}]
    for variant in unknown:
        with pytest.raises(KeyError, match="has no key"):
            update_config(config, variant)
    other_kinds: list[Variant] = [{"algo": 3}, {"name": {"a": 1}}]
    for variant in other_kinds:
        with pytest.raises(TypeError, match="expected the same kind"):
            update_config(config, variant)


def test_parts_inside_of_a_dictionary_are_changed_too():
    config: Variant = dict(algo=PPO(learning_rate=1e-3), seeds=[1, 2])
    new = update_config(config, json.loads('{"algo": {"learning_rate": 0.5}}'))
    assert (new["algo"].learning_rate, config["algo"].learning_rate) == (0.5, 1e-3)
    assert new["seeds"] is not config["seeds"]

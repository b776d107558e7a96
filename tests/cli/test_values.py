"""Values as the command line, files and grids write them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlpyt.cli.launch import variants_of
from rlpyt.cli.train import start_of, updated
from rlpyt.cli.values import kinds_of, pairs_of, text_of, value_of
from rlpyt.types import Kwargs


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("5e4", int, 50_000),
        ("1e-3", float, 1e-3),
        ("0.9999999", float, 0.9999999),
        ("1000001.0", float | str, 1_000_001.0),
        ("lin_1e-3", float | str, "lin_1e-3"),
        ("None", int | None, None),
        ("false", bool | str, False),
        ("True", bool | str, True),
        ("64,64", tuple[int, ...], (64, 64)),
        ("[64]", list[int] | None, (64,)),
        ("[[1,2],[3]]", list[tuple[int, ...]], ((1, 2), (3,))),
        ("[[1,2]]", list[tuple[int, ...]], ((1, 2),)),
        ("[x]", list[str] | str, ("x",)),
        ("[]", list[int], ()),
        ("a=[[1,2],[]],b=[]", Kwargs, {"a": ((1, 2), ()), "b": ()}),
        ('a={"b": 1, "c": 2},d=3', Kwargs, {"a": {"b": 1, "c": 2}, "d": 3}),
        ("a=1, b=[2, 3], c=x", Kwargs, {"a": 1, "b": (2, 3), "c": "x"}),
        ("{}", Kwargs, {}),
        ("x[1,2]", list[str], ("x[1,2]",)),
        ("a,x[1,2]", list[str], ("a", "x[1,2]")),
    ],
)
def test_texts_and_values(text, hint, value):
    found = value_of(text, kinds_of(hint))
    assert found == value
    assert type(found) is type(value)
    if text[0] != "{" and "x[" not in text:
        assert value_of(text_of(value), kinds_of(hint)) == value


TEXTS = [
    *("plain", "two words", "4x4", "hello, world", "a=b", "smile :)", "http://localhost:80/x?a=b", "ümläut"),
    *("path/to/file.xml", "[tag] title", "C:(D)", "-x", "007", "", "it's", "it's, so", "a (b, c) d", "x[1,2]"),
]
ODD_TEXTS = ["7", "None", "true", "1e5", "nan", "1,2", "[1]", "{}", "a=1,b=2", "[x", ' "x" ', '"', "a,b", "(", "=,]"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_that_looks_like_nothing_else_is_itself(text):
    assert pairs_of([f"text={text}"]) == {"text": text}
    assert pairs_of([f"size=3,text={text}"]) == {"size": 3, "text": text}
    assert value_of(f"text={text},size=3", kinds_of(Kwargs)) == {"size": 3, "text": text}


@pytest.mark.parametrize("text", [*TEXTS, *ODD_TEXTS])
def test_any_text_can_be_quoted(text):
    quoted = json.dumps(text, ensure_ascii=False)
    assert pairs_of([f"text={quoted}"]) == pairs_of([json.dumps({"text": text})]) == {"text": text}
    if "'" not in text:
        assert pairs_of([f"text='{text}'", "size=3"]) == {"text": text, "size": 3}
    variants: Any = variants_of([f'sampler.env_kwargs.text={quoted},{quoted[:-1]}x"'])
    assert [variant["sampler"]["env_kwargs"]["text"] for variant in variants[0]] == [text, f"{text}x"]
    # As a record is shown.
    for value in ({"text": text, "size": 3}, {"text": {"b": text}}, {"text": (text, 1)}):
        assert pairs_of([text_of(value)]) == value


@pytest.mark.parametrize(("text", "hint"), [("0.5", int), ("x", float), ("None", int), ("a", Kwargs)])
def test_texts_of_another_kind_are_refused(text, hint):
    with pytest.raises(ValueError, match="expected"):
        value_of(text, kinds_of(hint))


@pytest.mark.parametrize("text", ["a=[64,64", "a=[64]x", "a=64]", "[1],[2", "]1["])
def test_brackets_that_do_not_match_are_refused(text):
    with pytest.raises(ValueError, match=r"brackets do not match|nothing after the bracket"):
        value_of(text, kinds_of(Kwargs | list[int]))


@pytest.mark.parametrize(
    "text", ["1e-3", "007", "a=b", "[[1,2],[3]]", '"7"', '["7",8]', '{"a": 1, "b": "7"}', "ümläut"]
)
def test_a_text_means_the_same_in_every_option(text, in_folder):
    """A value of a grid that has a comma stands in brackets or quotes: there it is a list."""
    (wanted,) = pairs_of([f"x={text}"]).values()
    assert pairs_of([f"y=1,x={text}"]) == {"y": 1, "x": wanted}
    run: Any = start_of(
        ["ppo", "FrozenLake-v1", "--sampler.env-kwargs", f"x={text}", "--agent.model-kwargs", f"x={text}"]
    )
    assert run.runner.sampler.env_kwargs["x"] == run.runner.agent.model_kwargs["x"] == wanted
    varied: Any = updated(run.runner, variants_of([f"sampler.env_kwargs.y={text}"])[0][0])
    assert varied.sampler.env_kwargs["y"] == wanted
    (in_folder / "file.json").write_text(json.dumps({"sampler": {"env_kwargs": f"x={text}"}}))
    of_file: Any = start_of(["ppo", "FrozenLake-v1", "--config", "file.json"]).runner
    assert of_file.sampler.env_kwargs["x"] == wanted


@pytest.mark.parametrize("option", ["--env-kwargs", "--sampler.env-kwargs"])
def test_a_dictionary_is_given_in_several_forms_and_several_times(option):
    for given in (
        [option, "map_name=8x8", "is_slippery=False"],
        [option, "map_name=8x8,is_slippery=False"],
        [f"{option}=map_name=8x8", "--seed", "1", option, '{"is_slippery": false}'],
    ):
        runner: Any = start_of(["ppo", "FrozenLake-v1", *given, "--algo.epochs", "2"]).runner
        assert runner.sampler.env_kwargs == {"id": "FrozenLake-v1", "map_name": "8x8", "is_slippery": False}
        assert runner.algo.epochs == 2

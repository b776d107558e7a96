"""Random streams: one seed a run, and no two streams of it the same."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from rlpyt.utils.seeds import (
    Role,
    checked_stream,
    global_streams,
    numpy_generator,
    seed_sequence,
    set_global_streams,
    set_seed,
    stream_seed,
    torch_generator,
)


def test_the_numbers_of_the_roles_never_change():
    names = ["MODEL", "ENV", "EVAL_ENV", "ACTIONS", "EVAL_ACTIONS", "ALGO", "DECORRELATION", "ENV_CHECK"]
    names += ["SAMPLER", "WORKER", "EVALUATOR", "ENV_MADE", "EVAL_ENV_MADE"]
    assert {role.name: int(role) for role in Role} == {name: i for i, name in enumerate(names)}


def test_the_streams_of_published_runs_never_change():
    # By numpy's own SeedSequence, whose algorithm is fixed (NEP 19).
    assert stream_seed(0, Role.ENV, 3) == np.random.SeedSequence(0, spawn_key=(1, 3)).generate_state(1)[0] >> 1
    assert [stream_seed(1, Role.ENV, rank) for rank in range(3)] == [1645468115, 1368576262, 579240235]
    assert stream_seed(1, Role.EVAL_ENV, 0) == 268633348
    assert numpy_generator(1, Role.DECORRELATION, 2).integers(1000, size=3).tolist() == [45, 649, 780]
    assert torch_generator(1, Role.ACTIONS).initial_seed() == 2993259647479117983


def test_all_streams_of_a_run_are_distinct():
    keys = [(role, rank) for role in Role for rank in range(1024)]
    states = {tuple(seed_sequence(1, role, rank).generate_state(4)) for role, rank in keys}
    assert len(states) == len(keys)
    assert len({torch_generator(1, role, rank).initial_seed() for role, rank in keys}) == len(keys)


def test_no_two_environments_of_a_run_have_the_same_seed():
    # These are 31-bit numbers, as gymnasium and ALE take them: distinct for every run of a usual size.
    for seed in range(50):
        seeds = [stream_seed(seed, role, rank) for role in (Role.ENV, Role.EVAL_ENV) for rank in range(256)]
        assert len(set(seeds)) == len(seeds)
        assert all(0 <= s < 2**31 for s in seeds)


def test_a_stream_repeats_itself_and_not_another():
    for make in (numpy_generator, torch_generator):
        draws = [_draw(make(5, Role.ALGO, rank)) for rank in (0, 0, 1)]
        assert draws[0] == draws[1] != draws[2]
    assert _draw(numpy_generator(5, Role.ALGO)) == _draw(numpy_generator(5, Role.ALGO, 0))


def _draw(generator: np.random.Generator | torch.Generator) -> list[float]:
    if isinstance(generator, torch.Generator):
        return torch.rand(4, generator=generator).tolist()
    return generator.random(4).tolist()


def test_set_seed_seeds_what_user_code_may_draw_from():
    def draw() -> tuple[float, ...]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    set_seed(3)
    first, second = draw(), draw()
    set_seed(3)
    assert draw() == first != second
    set_seed(4)
    assert draw() != first


@pytest.mark.parametrize("seed", [0, 2**31 - 1, 2**63])
def test_any_seed_that_fits_a_word_will_do(seed):
    set_seed(seed)
    assert 0 <= stream_seed(seed, Role.ENV) < 2**31


def test_every_global_generator_goes_on_where_it_stood():
    set_seed(3)
    random.gauss(0, 1), np.random.normal()  # each leaves half of a pair behind
    state = global_streams()
    expected = [random.gauss(0, 1), random.random(), np.random.normal(), np.random.rand(), float(torch.rand(()))]
    set_seed(4)
    set_global_streams(state)
    got = [random.gauss(0, 1), random.random(), np.random.normal(), np.random.rand(), float(torch.rand(()))]
    assert got == expected


@pytest.mark.parametrize("position", [-1, 625, 2**40])
def test_a_stream_does_not_go_on_outside_of_its_words(position):
    """numpy takes the position as it comes, and would read other memory of the process."""
    state = global_streams()
    name, keys, _, *gauss = state["numpy"]
    with pytest.raises(ValueError, match="expected 0 to 624"):
        set_global_streams({**state, "numpy": (name, keys, position, *gauss)})
    np.random.random()


@pytest.mark.parametrize(("left", "used"), [(624, 2), (624, 624), (2, 624)])
def test_a_stream_of_torch_does_not_go_on_outside_of_its_words(left, used):
    state = torch.Generator().get_state()
    words = state.numpy()
    words[8:12].view(np.int32)[:], words[16:24].view(np.uint64)[:] = left, used
    torch.Generator().set_state(state)  # torch takes it
    with pytest.raises(ValueError, match="expected 624 words in all"):
        checked_stream(state)


def test_a_stream_of_torch_goes_on_from_all_of_its_words():
    generator = torch.Generator().manual_seed(3)
    for _ in range(1300):
        checked_stream(generator.get_state())
        torch.randint(2, (1,), generator=generator)


def test_streams_of_more_gpus_than_are_there_are_left_out(monkeypatch):
    given: list[list[torch.Tensor]] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", given.append)
    set_global_streams({**global_streams(), "cuda": [torch.zeros(16), torch.ones(16)]})
    assert [len(states) for states in given] == [1]

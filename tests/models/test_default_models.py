from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import nn

from rlpyt.models import (
    AtariCatDqnModel,
    AtariDqnModel,
    AtariFfModel,
    AtariLstmModel,
    AtariR2d1Model,
    DuelingHeadModel,
    MujocoFfModel,
    MujocoLstmModel,
    NoisyLinear,
    PgModel,
    QModel,
)

IMAGE = Box(0, 255, (4, 84, 84), np.uint8)
VECTOR = Box(-1, 1, (4,))


def n_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def linear_sizes(model: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(m.weight.shape) for m in model.modules() if isinstance(m, nn.Linear)]


@pytest.mark.parametrize(
    ("space", "kwargs", "expected"),
    [
        (VECTOR, {}, [(64, 4), (64, 64), (6, 64), (64, 4), (64, 64), (1, 64)]),
        (IMAGE, {}, [(512, 3136), (6, 512), (1, 512)]),
        (Dict({"image": IMAGE, "vector": VECTOR}), {}, [(512, 3136), (64, 516), (64, 64), (6, 64), (1, 64)]),
        (VECTOR, dict(recurrent="lstm", rnn_size=32), [(64, 4), (64, 64), (6, 32), (1, 32)]),
    ],
)
def test_pg_model_sizes(space: Any, kwargs: dict[str, Any], expected: list[tuple[int, int]]) -> None:
    model = PgModel(space, Discrete(6), **kwargs)
    assert linear_sizes(model) == expected
    assert any(isinstance(m, nn.Tanh) for m in model.modules()) == (space is not IMAGE)
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert sum(map(n_parameters, convolutions)) == (0 if space is VECTOR else 8224 + 32832 + 36928)  # of Nature
    if model.core is not None:
        assert model.core.rnn.input_size == 64 + 6 + 1  # previous action and reward


@pytest.mark.parametrize("space", [VECTOR, IMAGE])
def test_orthogonal_start(space: Box) -> None:
    model = PgModel(space, Discrete(6), recurrent="lstm", rnn_size=32)
    for head, gain in [(model.policy, 0.01), (model.value, 1.0)]:
        weight = head[-1].get_parameter("weight")
        torch.testing.assert_close(weight @ weight.T, gain**2 * torch.eye(len(weight)), atol=1e-5, rtol=1e-4)
    hidden = next(m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)).weight.flatten(1)
    assert torch.linalg.matrix_norm(hidden, 2).item() == pytest.approx(math.sqrt(2), rel=1e-4)
    assert model.core is not None
    assert torch.linalg.matrix_norm(model.core.rnn.weight_hh_l0, 2).item() == pytest.approx(1, rel=1e-4)
    assert all(not p.any() for name, p in model.named_parameters() if "bias" in name)
    plain = PgModel(space, Discrete(6), orthogonal_init=False)
    assert all(p.any() for name, p in plain.named_parameters() if "bias" in name)


def test_log_std_is_one_parameter_a_dimension() -> None:
    model = PgModel(VECTOR, Box(-1, 1, (3,)), init_log_std=-0.5)
    mean, log_std, _ = model(torch.randn(5, 4), torch.zeros(5, 3), torch.zeros(5))
    assert mean.shape == log_std.shape == (5, 3)
    assert (log_std == -0.5).all()
    log_std.sum().backward()
    assert model.log_std is not None
    assert model.log_std.grad is not None
    assert model.log_std.grad.tolist() == [5, 5, 5]


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        (dict(), [(128, 4), (128, 128), (2, 128)]),
        (dict(observation_space=IMAGE), [(512, 3136), (2, 512)]),
        (dict(observation_space=IMAGE, dueling=True), [(512, 3136), (2, 512), (512, 3136), (1, 512)]),
        (dict(observation_space=IMAGE, recurrent="lstm"), [(512, 3136), (512, 512), (2, 512)]),
        (dict(dueling=True), [(128, 4), (128, 128), (2, 128), (128, 128), (1, 128)]),
        (dict(hidden_sizes=32), [(32, 4), (2, 32)]),
        (dict(hidden_sizes=32, dueling=True), [(32, 4), (2, 32), (32, 4), (1, 32)]),
        (dict(recurrent="gru", rnn_size=16), [(128, 4), (128, 128), (128, 16), (2, 128)]),
        (dict(n_atoms=51), [(128, 4), (128, 128), (102, 128)]),
        (dict(n_atoms=51, dueling=True), [(128, 4), (128, 128), (102, 128), (128, 128), (51, 128)]),
        (dict(head_sizes=32), [(128, 4), (128, 128), (32, 128), (2, 32)]),
        (dict(head_sizes=()), [(128, 4), (128, 128), (2, 128)]),
        (dict(head_sizes=32, recurrent="gru", rnn_size=16), [(128, 4), (128, 128), (32, 16), (2, 32)]),
    ],
)
def test_q_model_sizes(kwargs: dict[str, Any], expected: list[tuple[int, int]]) -> None:
    model = QModel(**{"observation_space": VECTOR, "action_space": Discrete(2), **kwargs})
    assert linear_sizes(model) == expected
    assert isinstance(model.head, DuelingHeadModel) == kwargs.get("dueling", False)


def test_only_the_head_is_noisy() -> None:
    model = QModel(IMAGE, Discrete(6), noisy=True, dueling=True, n_atoms=51)
    assert linear_sizes(model) == []
    noisy = [tuple(m.weight.shape) for m in model.modules() if isinstance(m, NoisyLinear)]
    assert noisy == [(512, 3136), (306, 512), (512, 3136), (51, 512)]
    recurrent = QModel(VECTOR, Discrete(2), noisy=True, recurrent="lstm")
    assert linear_sizes(recurrent) == [(128, 4), (128, 128)]


def test_q_model_refuses_other_actions() -> None:
    with pytest.raises(TypeError, match=r"QModel: the action space is Box.*expected Discrete"):
        QModel(VECTOR, Box(-1, 1, (2,)))


# ---- models of rlpyt 0.1 ----

SHAPE = (4, 104, 80)
"""Of Atari frames: convolutions make 25 x 19 and 12 x 9 of them, and the third of three keeps that."""
TWO, THREE = 4 * 16 * 64 + 16 + 16 * 32 * 16 + 32 + 32 * 108 * 512 + 512, 8224 + 32832 + 36928
FC, LSTM = 64 * 108 * 512 + 512, 4 * 512 * (512 + 6 + 1 + 512 + 2)
ARGUMENTS = {
    AtariFfModel: "fc_sizes use_maxpool channels kernel_sizes strides paddings",
    AtariLstmModel: "fc_sizes lstm_size use_maxpool channels kernel_sizes strides paddings",
    AtariDqnModel: "fc_sizes dueling use_maxpool channels kernel_sizes strides paddings noisy n_atoms",
    AtariCatDqnModel: "n_atoms fc_sizes dueling use_maxpool channels kernel_sizes strides paddings noisy",
    AtariR2d1Model: "fc_size lstm_size head_size dueling use_maxpool channels kernel_sizes strides paddings noisy",
}


@pytest.mark.parametrize(
    ("Model", "kwargs", "n"),
    [
        (AtariFfModel, {}, TWO + 513 * 7),
        (AtariLstmModel, {}, TWO + LSTM + 513 * 7),
        (AtariDqnModel, {}, THREE + FC + 513 * 6),
        (AtariCatDqnModel, {}, THREE + FC + 513 * 6 * 51),
        # Less one parameter an atom of rlpyt 0.1, a bias that all actions shared.
        (AtariCatDqnModel, {"dueling": True}, THREE + 2 * FC + 512 * 6 * 51 + 513 * 51),
        (AtariR2d1Model, {}, THREE + FC + LSTM + 513 * 512 + 513 * 6),
        (AtariR2d1Model, {"dueling": True}, THREE + FC + LSTM + 2 * 513 * 512 + 512 * 6 + 513),
    ],
)
def test_sizes_by_hand_from_the_constructors_of_rlpyt_0_1(Model: Any, kwargs: dict[str, Any], n: int) -> None:
    assert n_parameters(Model(SHAPE, 6, **kwargs)) == n


@pytest.mark.parametrize("Model", ARGUMENTS)
def test_arguments_stand_in_their_order(Model: Any) -> None:
    assert list(inspect.signature(Model).parameters) == ["image_shape", "output_size", *ARGUMENTS[Model].split()]
    with pytest.raises(TypeError, match=rf"^{Model.__name__} has no argument 'chanels'. Did you mean channels\?"):
        Model(SHAPE, 6, chanels=[4])
    with pytest.raises(TypeError, match=rf"^{Model.__name__}\(\) missing a required argument: 'output_size'"):
        Model(SHAPE)


def test_other_layers_by_place_and_by_name() -> None:
    model = AtariDqnModel((1, 20, 20), 3, [64, 32], False, False, [8], [4], [2], [1])
    assert linear_sizes(model) == [(64, 8 * 10 * 10), (32, 64), (3, 32)]
    other = AtariR2d1Model((1, 20, 20), 3, 64, 32, 16, True, False, [8], [4], [2], [1])
    assert linear_sizes(other) == [(64, 800), (16, 32), (3, 16), (16, 32), (1, 16)]
    kwargs: dict[str, Any] = dict(channels=[8], kernel_sizes=[4], strides=[2], paddings=[1])
    assert linear_sizes(AtariR2d1Model((1, 20, 20), 3, 64, 32, (), **kwargs)) == [(64, 800), (3, 32)]
    torch.manual_seed(0)
    given = AtariDqnModel(SHAPE, 6, channels=None, paddings=None)
    torch.manual_seed(0)
    assert all(map(torch.equal, given.state_dict().values(), AtariDqnModel(SHAPE, 6).state_dict().values()))


def test_a_subclass_may_pass_its_arguments_on() -> None:
    class Mine(AtariDqnModel):
        def __init__(self, *args: Any, size: int = 3, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.size = size

    mine = Mine((1, 20, 20), 3, 16, channels=[8], kernel_sizes=[4], strides=[2], paddings=[1], size=5)
    assert (mine.size, linear_sizes(mine)) == (5, [(16, 8 * 10 * 10), (3, 16)])
    with pytest.raises(TypeError, match=r"^Mine has no argument 'sizes'. Did you mean size"):
        Mine((1, 20, 20), 3, sizes=5)


def test_mujoco_ff() -> None:
    model = MujocoFfModel((17,), 6)
    assert linear_sizes(model) == [(64, 17), (64, 64), (6, 64), (64, 17), (64, 64), (1, 64)]
    mean, log_std, _ = model(1e3 * torch.randn(50, 17), torch.zeros(50, 6), torch.zeros(50))
    assert mean.abs().max() <= 1
    assert not log_std.any()
    assert not list(model.buffers())
    linear = MujocoFfModel((17,), 6, mu_nonlinearity=None)
    assert isinstance(linear.mu[-1], nn.Linear)


def test_mujoco_lstm() -> None:
    model = MujocoLstmModel((17,), 6)
    assert linear_sizes(model) == [(256, 17), (256, 256), (13, 256)]
    x = torch.randn(2, 17)
    log_std = model(x, torch.zeros(2, 6), torch.zeros(2))[1]
    assert not torch.equal(log_std[0], log_std[1])


def test_mujoco_observations_are_flattened_and_normalised() -> None:
    model = MujocoFfModel((2, 3), 2, normalize_observation=True, norm_obs_clip=2.0, norm_obs_var_clip=4.0)
    x = torch.randn(3, 4, 2, 3)
    model.update_obs_rms(x)
    features, _ = model.features(1e6 * x, torch.zeros(3, 4, 2), torch.zeros(3, 4))
    assert features.shape == (3, 4, 6)
    assert features.abs().max() == 2


def test_a_standard_deviation_that_depends_on_the_state_starts_from_its_initial_value() -> None:
    model = PgModel(VECTOR, Box(-1, 1, (3,)), init_log_std=-0.5, state_dependent_std=True)
    observation = torch.randn(5, *VECTOR.shape)
    mean, log_std, value = model(observation, torch.zeros(5, 3), torch.zeros(5))
    assert mean.shape == log_std.shape == (5, 3)
    assert value.shape == (5,)
    torch.testing.assert_close(log_std, torch.full((5, 3), -0.5), rtol=0, atol=0.1)  # the head's gain is 0.01
    assert (log_std.std(0) > 0).all()

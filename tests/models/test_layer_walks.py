"""Walks over layers, against those of torch."""

from typing import Any

import pytest
import torch
from torch import nn

from rlpyt.models.utils import LayerFinder, layers, weights_and_buffers


class Tied(nn.Module):
    """Layers and weights that stand in several places, and places without any."""

    def __init__(self) -> None:
        super().__init__()
        linear, count = nn.Linear(2, 2), torch.zeros(())
        self.first = nn.Sequential(linear, nn.BatchNorm1d(2))
        self.none = None
        self.register_module("no_layer", None)
        self.register_parameter("no_weight", None)
        self.again = self.first
        self.tied = nn.Linear(2, 2)
        self.tied.weight = linear.weight
        self.rnn = nn.LSTM(2, 2)
        self.register_buffer("count", count)
        self.register_buffer("same", count)


class KeepsEvaluating(nn.Module):
    """A layer that never trains, as frozen normalisation does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def train(self, mode: bool = True) -> "KeepsEvaluating":
        """Refuse to train."""
        return super().train(False)


class NotesMore(nn.Module):
    """A layer that keeps something by its mode."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "training":
            super().__setattr__("seen", value)


class AsProperty(nn.Module):
    """A layer whose mode is a property."""

    @property
    def training(self) -> bool:
        """Kept under another name."""
        return bool(self.__dict__.get("_own", False))

    @training.setter
    def training(self, value: bool) -> None:
        self.__dict__["_own"] = value


def test_layers_weights_and_buffers_are_those_of_torch_in_its_order() -> None:
    net = nn.Sequential(Tied(), nn.ReLU(), Tied())
    assert list(map(id, layers(net))) == list(map(id, net.modules()))
    weights, buffers = weights_and_buffers(layers(net))
    assert list(map(id, weights)) == list(map(id, net.parameters()))
    assert list(map(id, buffers)) == list(map(id, net.buffers()))
    assert len(buffers) == 2 * 4


@pytest.mark.parametrize("mode", [True, False])
def test_a_mode_reaches_what_it_reaches_by_torch(mode: bool) -> None:
    net, by_torch = (
        nn.Sequential(Tied(), nn.Dropout(), KeepsEvaluating(), NotesMore(), AsProperty(), nn.Sequential(NotesMore()))
        for _ in range(2)
    )
    for x in (net, by_torch):
        x.train(not mode)
    LayerFinder().set_training(net, mode)
    by_torch.train(mode)
    assert [x.training for x in net.modules()] == [x.training for x in by_torch.modules()]
    assert [x.seen for x in net.modules() if isinstance(x, NotesMore)] == [mode, mode]


def test_a_layer_whose_mode_is_frozen_by_hand_stays_in_it() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    frozen = net[1].eval()
    frozen.train = lambda mode=True: frozen  # type: ignore[method-assign]
    LayerFinder().set_training(net, True)
    assert net.training
    assert not frozen.training


def test_a_finder_follows_layers_that_are_put_in_taken_out_and_exchanged() -> None:
    net, finder = nn.Sequential(Tied(), nn.ReLU(), Tied()), LayerFinder()

    def check() -> None:
        assert list(map(id, finder.of(net, nn.Module))) == list(map(id, net.modules()))
        assert list(map(id, finder.of(net, nn.Linear))) == [id(x) for x in net.modules() if isinstance(x, nn.Linear)]
        assert list(map(id, finder.buffers(net))) == list(map(id, net.buffers()))

    check()
    net.append(nn.BatchNorm1d(2))
    check()
    net[0].tied = nn.Linear(3, 3)  # deep inside, as many layers as before
    check()
    del net[1]
    check()
    net[0].no_layer = nn.Linear(2, 2)
    check()
    net[0].register_buffer("count", torch.ones(()))  # a buffer in the place of another
    check()


def test_a_finder_looks_for_layers_again_only_where_they_have_changed() -> None:
    net, finder = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), LayerFinder()
    found = finder.of(net, nn.Linear)
    assert finder.of(net, nn.Linear) is found
    net[0] = nn.Linear(2, 2)
    assert finder.of(net, nn.Linear) == [net[0]]
    assert finder.of(nn.Linear(2, 2), nn.Linear) != [net[0]]  # of another network

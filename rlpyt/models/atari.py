"""The image models with rlpyt 0.1's names, arguments, sizes and initialisation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium import spaces

from rlpyt.models.pg import PgModel
from rlpyt.models.q import QModel


def _images(image_shape: Sequence[int]) -> spaces.Box:
    return spaces.Box(0, 255, tuple(image_shape), np.uint8)


class AtariFfModel(PgModel):
    """Policy and value over a small convolutional network; returns `(logits, value)`.

    Args:
        image_shape: (C, height, width).
        output_size: number of actions.
        fc_sizes: fully connected layers over the convolutions.
        use_maxpool: whether to shrink by max pooling instead of by strides.
        channels: of the convolutions; None is (16, 32).
        kernel_sizes: None is (8, 4).
        strides: None is (4, 2).
        paddings: None is (0, 1).
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        output_size: int,
        fc_sizes: int | Sequence[int] = 512,
        use_maxpool: bool = False,
        channels: Sequence[int] | None = None,
        kernel_sizes: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        paddings: Sequence[int] | None = None,
    ) -> None:
        super().__init__(
            _images(image_shape),
            spaces.Discrete(output_size),
            fc_sizes=fc_sizes,
            use_maxpool=use_maxpool,
            channels=channels or (16, 32),
            kernel_sizes=kernel_sizes or (8, 4),
            strides=strides or (4, 2),
            paddings=paddings or (0, 1),
            orthogonal_init=False,
        )


class AtariLstmModel(PgModel):
    """`AtariFfModel` with an LSTM before the heads; returns `(logits, value, next_rnn_state)`.

    Args:
        image_shape: (C, height, width).
        output_size: number of actions.
        fc_sizes: fully connected layers over the convolutions.
        lstm_size: units of the LSTM.
        use_maxpool: whether to shrink by max pooling instead of by strides.
        channels: of the convolutions; None is (16, 32).
        kernel_sizes: None is (8, 4).
        strides: None is (4, 2).
        paddings: None is (0, 1).
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        output_size: int,
        fc_sizes: int | Sequence[int] = 512,
        lstm_size: int = 512,
        use_maxpool: bool = False,
        channels: Sequence[int] | None = None,
        kernel_sizes: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        paddings: Sequence[int] | None = None,
    ) -> None:
        super().__init__(
            _images(image_shape),
            spaces.Discrete(output_size),
            fc_sizes=fc_sizes,
            recurrent="lstm",
            rnn_size=lstm_size,
            use_maxpool=use_maxpool,
            channels=channels or (16, 32),
            kernel_sizes=kernel_sizes or (8, 4),
            strides=strides or (4, 2),
            paddings=paddings or (0, 1),
            orthogonal_init=False,
        )


class AtariDqnModel(QModel):
    """The network of Mnih et al. 2015 with padding, dueling if asked for; returns `q`.

    Args:
        image_shape: (C, height, width).
        output_size: number of actions.
        fc_sizes: fully connected layers over the convolutions.
        dueling: whether value and advantage have streams of their own.
        use_maxpool: whether to shrink by max pooling instead of by strides.
        channels: of the convolutions; None is (32, 64, 64).
        kernel_sizes: None is (8, 4, 3).
        strides: None is (4, 2, 1).
        paddings: None is (0, 1, 1).
        noisy: whether the head's layers are `NoisyLinear`.
        n_atoms: see `QModel`.
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        output_size: int,
        fc_sizes: int | Sequence[int] = 512,
        dueling: bool = False,
        use_maxpool: bool = False,
        channels: Sequence[int] | None = None,
        kernel_sizes: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        paddings: Sequence[int] | None = None,
        noisy: bool = False,
        n_atoms: int | None = None,
    ) -> None:
        super().__init__(
            _images(image_shape),
            spaces.Discrete(output_size),
            fc_sizes=fc_sizes,
            dueling=dueling,
            noisy=noisy,
            n_atoms=n_atoms,
            use_maxpool=use_maxpool,
            channels=channels or (32, 64, 64),
            kernel_sizes=kernel_sizes or (8, 4, 3),
            strides=strides or (4, 2, 1),
            paddings=paddings or (0, 1, 1),
        )


class AtariCatDqnModel(AtariDqnModel):
    """`AtariDqnModel` with a distribution over atoms for every action; returns their logits [..., A, n_atoms].

    Args:
        image_shape: (C, height, width).
        output_size: number of actions.
        n_atoms: of the distribution.
        fc_sizes: fully connected layers over the convolutions.
        dueling: whether value and advantage have streams of their own.
        use_maxpool: whether to shrink by max pooling instead of by strides.
        channels: of the convolutions; None is (32, 64, 64).
        kernel_sizes: None is (8, 4, 3).
        strides: None is (4, 2, 1).
        paddings: None is (0, 1, 1).
        noisy: whether the head's layers are `NoisyLinear`.
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        output_size: int,
        n_atoms: int = 51,
        fc_sizes: int | Sequence[int] = 512,
        dueling: bool = False,
        use_maxpool: bool = False,
        channels: Sequence[int] | None = None,
        kernel_sizes: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        paddings: Sequence[int] | None = None,
        noisy: bool = False,
    ) -> None:
        layers = (fc_sizes, dueling, use_maxpool, channels, kernel_sizes, strides, paddings)
        super().__init__(image_shape, output_size, *layers, noisy=noisy, n_atoms=n_atoms)


class AtariR2d1Model(QModel):
    """The convolutional LSTM network of R2D2 (Kapturowski et al. 2019) with padding; returns `(q, next_rnn_state)`.

    Args:
        image_shape: (C, height, width).
        output_size: number of actions.
        fc_size: fully connected layers between the convolutions and the LSTM.
        lstm_size: units of the LSTM.
        head_size: hidden layers over the LSTM.
        dueling: whether value and advantage have streams of their own.
        use_maxpool: whether to shrink by max pooling instead of by strides.
        channels: of the convolutions; None is (32, 64, 64).
        kernel_sizes: None is (8, 4, 3).
        strides: None is (4, 2, 1).
        paddings: None is (0, 1, 1).
        noisy: whether the head's layers are `NoisyLinear`.
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        output_size: int,
        fc_size: int | Sequence[int] = 512,
        lstm_size: int = 512,
        head_size: int | Sequence[int] = 512,
        dueling: bool = False,
        use_maxpool: bool = False,
        channels: Sequence[int] | None = None,
        kernel_sizes: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        paddings: Sequence[int] | None = None,
        noisy: bool = False,
    ) -> None:
        super().__init__(
            _images(image_shape),
            spaces.Discrete(output_size),
            fc_sizes=fc_size,
            recurrent="lstm",
            rnn_size=lstm_size,
            head_sizes=head_size,
            dueling=dueling,
            noisy=noisy,
            use_maxpool=use_maxpool,
            channels=channels or (32, 64, 64),
            kernel_sizes=kernel_sizes or (8, 4, 3),
            strides=strides or (4, 2, 1),
            paddings=paddings or (0, 1, 1),
        )

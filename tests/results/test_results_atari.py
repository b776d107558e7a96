from __future__ import annotations

import pytest

from rlpyt.results import ATARI_SCORES, atari_game, human_normalized_score


def test_the_57_games_and_their_scores():
    assert len(ATARI_SCORES) == 57
    assert all(random < human for random, human in ATARI_SCORES.values())
    # Sums of the columns of dqn_zoo/atari_data.py.
    random, human = (sum(column) for column in zip(*ATARI_SCORES.values(), strict=True))
    assert round(random, 1) == 50864.9
    assert round(human, 1) == 606494.2


def test_the_games_are_those_of_ale():
    roms = pytest.importorskip("ale_py.roms", reason="needs the extra atari")
    assert set(ATARI_SCORES) <= set(roms.get_all_rom_ids())


def test_scores():
    assert human_normalized_score("pong", -20.7) == 0
    assert human_normalized_score("ALE/Pong-v5", 14.6) == 1
    assert human_normalized_score("Breakout", 401.2) == pytest.approx((401.2 - 1.7) / 28.8)  # DQN's, 1387 %


@pytest.mark.parametrize(
    ("name", "game"),
    [
        ("ms_pacman", "ms_pacman"),
        ("ALE/MsPacman-v5", "ms_pacman"),
        ("MsPacmanNoFrameskip-v4", "ms_pacman"),
        ("ALE/Hero-ram-v5", "hero"),
        ("MinAtar/Breakout-v1", None),
        ("CartPole-v1", None),
        ("", None),
    ],
)
def test_names(name, game):
    assert atari_game(name) == game


def test_other_games_are_refused():
    with pytest.raises(ValueError, match="got the game 'CartPole-v1'; expected one of the 57 Atari games"):
        human_normalized_score("CartPole-v1", 1.0)

from __future__ import annotations

import numpy as np
import pytest

from rlpyt.envs import info_at, info_recorder
from rlpyt.envs.info import vector_info

EXAMPLES = {"game_score": np.float32(0), "ale.lives": np.int64(0), "position": np.zeros(2, np.float32)}


def test_chosen_fields_are_recorded_in_order():
    example, record, _ = info_recorder(["ale.lives", "position"], EXAMPLES)
    row = record({"position": [1.0, 2.0], "ale.lives": 3, "game_score": 9.0, "name": "x"})
    assert type(row).__name__ == "EnvInfo"
    assert row._fields == ("ale.lives", "position")
    assert row["ale.lives"] == 3
    assert row["position"].tolist() == [1.0, 2.0]
    assert example["position"].shape == (2,)
    assert example["ale.lives"].dtype == np.int64


def test_rows_can_be_written_into_buffers_and_missing_fields_are_zeros():
    example, record, _ = info_recorder(["position", "ale.lives"], EXAMPLES)
    buffer = type(example)(np.ones((4, 2), np.float32), np.ones(4, np.int64))
    buffer[1] = record({"position": None})
    assert buffer.position.tolist() == [[1, 1], [0, 0], [1, 1], [1, 1]]
    assert buffer["ale.lives"].tolist() == [1, 0, 1, 1]


def test_notice_names_what_is_left_out():
    assert info_recorder(["position"], EXAMPLES, ["name"]).notice == (
        "Not recorded from the environment's info: ale.lives, name."
    )
    assert info_recorder(EXAMPLES, EXAMPLES).notice == ""
    given = {"final_observation": np.zeros(2, np.float32)}  # which the adapter reads, and so is not left out
    assert info_recorder((), given, ["final_info"]).notice == ""


def test_nothing_to_record():
    example, record, _ = info_recorder((), EXAMPLES)
    assert example is None
    assert record({"game_score": 1.0}) is None


def test_an_unseen_field_needs_an_example():
    with pytest.raises(
        ValueError, match=r"no example of the fields \['episode'\] was seen.*'game_score'.*not numeric \['name'\]"
    ):
        info_recorder(["episode"], EXAMPLES, ["name"])
    example, record, _ = info_recorder({"episode": 0.0}, EXAMPLES)
    assert example.episode.dtype == np.float32
    assert record({}).episode == 0
    with pytest.raises(ValueError, match="the example of 'name' is 'x', expected a number"):
        info_recorder({"name": "x"}, EXAMPLES)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ale.lives", 0.5),
        ("over", 2),
        ("over", 0.0),
        ("position", 1.0),
        ("position", [1.0, 2.0, 3.0]),
        ("game_score", "7"),
    ],
)
def test_a_field_that_would_be_cut_is_refused(key, value):
    _, record, _ = info_recorder(["ale.lives", "position", "game_score", "over"], {**EXAMPLES, "over": np.bool_(False)})
    with pytest.raises(ValueError, match=rf"Recording '{key}'.*got .*expected .*Give an example"):
        record({key: value})


def test_a_field_may_be_of_a_smaller_kind():
    _, record, _ = info_recorder(["ale.lives", "game_score"], EXAMPLES)
    row = record({"ale.lives": True, "game_score": 7})
    assert (row["ale.lives"], row.game_score) == (1, 7)


def test_a_numpy_example_decides_the_dtype():
    given = {"clock": np.float64(0), "level": np.zeros(2, np.uint8), "plain": 0.0}
    example, record, _ = info_recorder(given, {})
    assert [str(null.dtype) for null in example] == ["float64", "uint8", "float32"]
    row = record({"clock": 1234567890.123, "level": [3, 255], "plain": 1})
    buffer = type(example)(*[np.zeros((1, *null.shape), null.dtype) for null in example])
    buffer[0] = row
    assert buffer.clock[0] == 1234567890.123
    assert buffer.level[0].tolist() == [3, 255]


@pytest.mark.parametrize(
    ("example", "value"), [(np.int8(0), 128), (np.uint8(0), -1), (0, np.uint64(2**63)), (np.uint32(0), 2**40)]
)
def test_an_integer_that_would_wrap_is_refused(example, value):
    _, record, _ = info_recorder({"x": example}, {})
    assert record({"x": 7}).x == 7
    with pytest.raises(ValueError, match=r"Recording 'x'.*Give an example of its largest kind"):
        record({"x": value})


def test_a_mask_that_no_agent_sees_is_told_of():
    notice = info_recorder((), {"action_mask": np.zeros(3, bool), "lives": np.int64(0)}).notice
    assert notice.startswith(
        "Not recorded from the environment's info: action_mask, lives. No agent heeds action_mask: "
    )
    assert "Dict observation, or of info from the first reset on" in notice
    heeded = info_recorder((), {"action_mask": np.zeros(3, bool), "lives": np.int64(0)}, heeded=["action_mask"])
    assert heeded.notice == "Not recorded from the environment's info: lives."


def test_a_list_of_infos_becomes_arrays_with_masks():
    picture = np.ones((2, 2))
    infos = [{"x": 1, "name": "a", "image": picture}, {"x": 2.5, "image": None}, {"odd": [1]}]
    found = vector_info(infos, 3)
    assert found["x"].tolist() == [1.0, 2.5, 0.0]
    assert found["_x"].tolist() == [True, True, False]
    assert found["name"].tolist() == ["a", None, None]
    assert found["image"].shape == (3, 2, 2)
    assert found["_image"].tolist() == [True, False, False]
    assert list(info_at(found, 0)) == ["x", "name", "image"]
    assert list(info_at(found, 2)) == ["odd"]
    assert vector_info(None, 3) == {}
    assert vector_info({"x": 1}, 3) == {"x": 1}

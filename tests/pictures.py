"""Pictures of the pages, drawn by code; `python -m tests.pictures` writes them into docs/pictures."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.drawing import FOLDER, Drawing
from tests.markdown import ROOT

FINAL = "final"


def rows() -> Drawing:
    """Draw the rows of one environment in two batches, those of the table in docs/reference/architecture.md."""
    columns = [
        ("10", "a", "1", ""), ("11", "b", "2", "terminated"), ("12", "0", "0", FINAL), ("20", "c", "1", ""),
        ("21", "d", "2", ""), ("22", "e", "3", "truncated"), ("23", "0", "0", FINAL), ("30", "f", "1", ""),
    ]  # fmt: skip
    drawing = Drawing(900, 322, "Rows of one environment: final rows stand between two episodes")
    for i, name in enumerate(("observation", "action", "reward", "flag")):
        drawing.words(14, 84 + 36 * i, name)
    for i, (observation, action, reward, flag) in enumerate(columns):
        x = 120 + 92 * i + (14 if i >= 5 else 0)
        drawing.words(x + 42, 52, f"t = {i % 5}", "middle")
        colour = "grey" if flag == FINAL else "blue"
        for row, value in enumerate((observation, action, reward)):
            drawing.box(x, 62 + 36 * row, 84, 32, colour, value)
        of_flag = ("grey", "not valid") if flag == FINAL else ("red" if flag else colour, flag)
        drawing.box(x, 62 + 36 * 3, 84, 32, *of_flag)
    drawing.words(120, 28, "batch 1", kind="bold")
    drawing.words(120 + 92 * 5 + 14, 28, "batch 2", kind="bold")
    drawing.line((120 + 92 * 5 + 3, 16), (120 + 92 * 5 + 3, 212), dashed=True)
    drawing.brace(120, 216, 92 * 3 - 8, "episode 1: the task ended")
    drawing.brace(120 + 92 * 3, 216, 92 * 4 + 6, "episode 2: a limit cut it")
    drawing.note(
        278,
        "A final row has the last observation of its episode: nobody acts on it, and no loss counts it.",
        "The value of 12 is not used, as nothing can follow. That of 23 stands for the rewards that were cut off.",
    )
    return drawing


def replay_readings() -> Drawing:
    """Draw what is read of a replay: frames, transitions and sequences."""
    drawing = Drawing(900, 474, "Readings of a replay: frames, transitions, sequences")
    final = {6, 13}
    place = [110 + 48 * i for i in range(16)]

    def strip(y: float, marked: dict[int, str]) -> None:
        for i, x in enumerate(place):
            drawing.box(x, y, 44, 32, "grey" if i in final else marked.get(i, "blue"), str(i))

    colours = {"blue": "valid row", "grey": "final row", "amber": "what is read", "green": "state or bootstrap"}
    drawing.key(110, 30, list(colours.items()))
    drawing.words(14, 78, "frames", kind="bold")
    strip(56, dict.fromkeys(range(1, 5), "amber"))
    drawing.brace(place[1], 92, 4 * 48 - 4, "a stack of 4: the frame of row 4, and of the 3 rows before it")
    drawing.words(14, 180, "transitions", kind="bold")
    strip(158, {**dict.fromkeys(range(1, 4), "amber"), 4: "green", 4 + 7: "amber", 12: "amber"})
    drawing.brace(place[1], 194, 3 * 48 - 4, "n = 3 rewards")
    drawing.arrow((place[4] + 22, 240), (place[4] + 22, 194))
    drawing.words(place[4] + 30, 238, "value of this row")
    drawing.brace(place[11], 194, 2 * 48 - 4, "the end comes first")
    drawing.arrow((place[13] + 22, 240), (place[13] + 22, 194))
    drawing.words(place[13] + 30, 238, "its value, if")
    drawing.words(place[13] + 30, 256, "truncated")
    drawing.words(14, 322, "sequences", kind="bold")
    strip(300, {4: "green", **dict.fromkeys((5, 7, 8, 9, 10, 11), "amber")})
    for i in range(0, 16, 4):
        drawing.arrow((place[i] + 8, 282), (place[i] + 8, 299))
        drawing.words(place[i] + 14, 290, "state", kind="quiet code")
    drawing.brace(place[4], 336, 2 * 48 - 4, "warmup_T")
    drawing.brace(place[6], 336, 5 * 48 - 4, "batch_T: trained on, but for row 6")
    drawing.brace(place[11], 336, 48 - 4, "n")
    drawing.note(
        410,
        "A transition begins at any valid row, a sequence where a recurrent state is stored, here in every fourth row.",
        "Its first rows only bring that state up to date. Row 7 begins an episode, so the state is zero there.",
        "A row of frames has its newest one, and a byte that says how many rows before it have the older ones.",
    )
    return drawing


def samplers() -> Drawing:
    """Draw which process steps environments, which runs the network, and who waits for whom."""
    drawing = Drawing(900, 556, "Samplers: who steps the environments, who runs the network, and who waits")
    drawing.key(14, 30, [("green", "environments step"), ("blue", "network"), ("amber", "learn"), ("grey", "wait")])
    y = 60.0

    def lanes(title: str, about: str, *named: tuple[str, str]) -> None:
        nonlocal y
        drawing.words(14, y + 8, title, kind="bold")
        drawing.words(190, y + 8, about)
        y += 20
        for name, blocks in named:
            drawing.words(14, y + 18, name)
            x = 190.0
            for block in blocks.split():
                colour = {"e": "green", "n": "blue", "L": "amber", "w": "grey"}[block[0]]
                width = 22 * int(block[1:])
                drawing.box(x, y, width, 26, colour)
                x += width
            y += 32
        y += 20

    lanes("SerialSampler", "one process does one thing after the other", ("this process", "n2 e4 " * 4 + "L3"))
    acting = "n1 e2 " * 4 + "w3"
    lanes(
        "CpuSampler", "each worker has half of the environments and a copy of the network; they meet once a batch",
        ("this process", "w12 L3"), ("worker 0", acting), ("worker 1", acting),
    )  # fmt: skip
    stepping = "w2 e2 " * 4 + "w3"
    lanes(
        "GpuSampler", "one forward pass for all environments; they meet at every step",
        ("this process", "n2 w2 " * 4 + "L3"), ("worker 0", stepping), ("worker 1", stepping),
    )  # fmt: skip
    lanes(
        "AlternatingSampler", "the network acts for one half of the environments while the other half steps",
        ("this process", "n1 n1 w1 " * 4 + "w1 L3"), ("worker 0, half A", "w1 e2 " * 4 + "w4"),
        ("worker 1, half B", "w1 " + "w1 e2 " * 4 + "w3"),
    )  # fmt: skip
    drawing.note(y, "Two workers and four time steps. Widths are time, for a network that takes as long as the steps.")
    return drawing


def lag() -> Drawing:
    """Draw synchronous collecting, and collecting that is one batch ahead."""
    drawing = Drawing(900, 346, "Lag 1: the next batch is collected while the last one is learned from")
    drawing.key(14, 30, [("green", "collect"), ("amber", "learn"), ("grey", "wait")])
    drawing.words(14, 68, "in turn", kind="bold")
    drawing.words(14, 96, "one process")
    for i in range(3):
        drawing.box(130 + 240 * i, 78, 116, 28, "green", f"batch {i}, by v{i}")
        drawing.box(130 + 240 * i + 120, 78, 116, 28, "amber", f"v{i} to v{i + 1}")
    drawing.words(14, 150, "lag = 1", kind="bold")
    drawing.words(14, 178, "sampler")
    drawing.words(14, 258, "learner")
    for i in range(6):
        drawing.box(130 + 120 * i, 160, 116, 28, "green", f"batch {i}, by v{max(i - 1, 0)}")
    drawing.box(130, 240, 116, 28, "grey")
    for i in range(5):
        drawing.box(250 + 120 * i, 240, 116, 28, "amber", f"{i}: v{i} to v{i + 1}")
        drawing.arrow((238 + 120 * i, 188), (238 + 120 * i, 214), (262 + 120 * i, 214), (262 + 120 * i, 239))
    for i in range(4):
        x = 354 + 120 * i
        drawing.arrow((x, 239), (x, 222), (x + 28, 222), (x + 28, 189), dashed=True)
    drawing.note(
        304,
        "Full arrows are rows, dashed ones weights. Version v of the weights has learned from v batches.",
        "Batch i + 1 is collected with version i, in every run: the lag is exact, and both sides work all the time.",
    )
    return drawing


def replicas() -> Drawing:
    """Draw replicas that average their gradients."""
    drawing = Drawing(900, 324, "Replicas: every one has rows of its own, and all take the same gradient step")
    steps = (
        ("green", "sampler", "rows of its own"),
        ("blue", "agent", "forward, loss"),
        ("amber", "gradient", "of its rows"),
    )
    for replica, y in ((0, 50), (1, 190)):
        drawing.words(14, y + 34, f"replica {replica}", kind="bold")
        for i, (colour, *lines) in enumerate(steps):
            drawing.box(120 + 165 * i, y, 130, 58, colour, *lines)
            if i:
                drawing.arrow((120 + 165 * i - 35, y + 29), (120 + 165 * i - 1, y + 29))
        drawing.arrow((580, y + 29), (652, y + 29), (652, 120 if not replica else 178))
        drawing.arrow((697, 120 if not replica else 178), (697, y + 29), (739, y + 29))
        drawing.box(740, y, 146, 58, "blue", "optimiser step", "the same weights")
    drawing.box(612, 120, 126, 58, "red", "mean of", "all gradients")
    drawing.note(
        282,
        "Only gradients, moments of normalisers and a few flags travel. So N replicas learn what one process learns",
        "from all rows. Replica 0 is the process of the script: it has the log, the snapshots and the trained agent.",
    )
    return drawing


def weights() -> Drawing:
    """Draw where the weights of an agent go: to those that act, to targets, and to files."""
    drawing = Drawing(900, 424, "The life of a weight: where it is learned, where it acts, and where it is kept")
    drawing.box(40, 150, 180, 76, "amber", "network of the learner", "one gradient step", "after the other")
    drawing.box(40, 290, 180, 54, "blue", "target network", "only learns")
    drawing.arrow((130, 226), (130, 289))
    drawing.words(138, 262, "copied, or moved by tau")
    drawing.box(330, 150, 210, 76, "blue", "WeightStore", "versions in shared memory,", "one a batch")
    drawing.arrow((220, 188), (329, 188))
    drawing.words(275, 178, "a version", "middle")
    acting = ["workers, act in a batch", "action servers", "sampler that is, lag batches ahead", "evaluator beside"]
    for i, text in enumerate(acting):
        y = 44 + 66 * i
        drawing.box(690, y, 180, 52, "green", *text.split(", "))
        drawing.arrow((540, 188), (615, 188), (615, y + 26), (689, y + 26))
    drawing.box(340, 20, 190, 54, "grey", "params.pkl", "snapshot: to load")
    drawing.box(340, 88, 190, 46, "grey", "checkpoint", "to go on from")
    drawing.arrow((130, 150), (130, 47), (339, 47))
    drawing.arrow((130, 150), (130, 111), (339, 111))
    drawing.note(
        384,
        "Without workers the network that learns acts itself. The sampler writes a version before it asks for a batch,",
        "and each reader knows whether it has the whole of it: so nobody acts by half an update.",
    )
    return drawing


def badges() -> Drawing:
    """Draw what setup.py says of the library in a row of badges: no service is asked, and a test keeps them true."""
    text = (ROOT / "setup.py").read_text()
    versions = re.findall(r"Python :: (3\.\d+)", text)
    [torch] = re.findall(r'"torch>=([\d.]+)"', text)
    [licence] = re.findall(r'license="(\w+)"', text)
    told = [
        ("Python", f"{versions[0]} to {versions[-1]}", "blue"), ("PyTorch", f"from {torch}", "red"),
        ("system", re.findall(r"POSIX :: (\w+)", text)[0], "grey"), ("licence", licence, "green"),
        ("hints", "typed" if "Typing :: Typed" in text else "none", "amber"),
    ]  # fmt: skip
    drawing = Drawing(8 + 156 * len(told), 40, ", ".join(f"{name} {value}" for name, value, _ in told))
    for i, (name, value, colour) in enumerate(told):
        drawing.box(8 + 156 * i, 8, 148, 24, colour, f"{name} {value}")
    return drawing


PICTURES: list[Callable[[], Drawing]] = [rows, replay_readings, samplers, lag, replicas, weights, badges]


if __name__ == "__main__":
    for picture in PICTURES:
        (FOLDER / f"{picture.__name__}.svg").write_text(picture().svg())

"""Pages that are notebooks: when the site is built their blocks are run, and what they print and draw stands below.

The source is Markdown, as of all pages, so that it can be read and compared anywhere, and its blocks run as tests. The
site also has each as a Jupyter notebook with its outputs, to be taken along.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Sequence
from contextlib import redirect_stdout
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
NOTEBOOKS = ("start/first_run", "howto/compare_a_loss", "howto/read_results")
BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


class Picture(NamedTuple):
    """What a block has drawn: a PNG in base64, and the titles of its axes."""

    png: str
    about: str


class Output(NamedTuple):
    """What a block has printed, the value of its last expression included, and what it has drawn."""

    text: str
    pictures: list[Picture]


def run_blocks(blocks: Sequence[str]) -> list[Output]:
    """Run blocks one after another, as cells of one notebook, and return what each has to show."""
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module  # where a class of a block is looked up by its name
    outputs = []
    for i, block in enumerate(blocks):
        tree = ast.parse(block)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        value = None
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(tree, f"block {i + 1}", "exec"), module.__dict__)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), f"block {i + 1}", "eval"), module.__dict__)
        drawn = [pyplot.figure(number) for number in pyplot.get_fignums()]
        text = printed.getvalue()
        if isinstance(value, Figure):
            drawn.append(value)
        elif value is not None:
            text += f"{value!r}\n"
        outputs.append(Output(text, [picture(figure) for figure in drawn]))
        pyplot.close("all")
    return outputs


def picture(figure: Figure) -> Picture:
    """Return what a notebook shows of a figure of matplotlib."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100, bbox_inches="tight")
    titles = [title for axes in figure.axes if (title := axes.get_title())]
    return Picture(base64.b64encode(file.getvalue()).decode(), "; ".join(titles))


def outputs_of(blocks: Sequence[str]) -> list[Output]:
    """Run blocks in a process and a folder of their own.

    Raises:
        RuntimeError: if a block fails.
    """
    settings = {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", "SDL_VIDEODRIVER": "dummy", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "blocks.json")
        file.write_text(json.dumps(blocks))
        done = subprocess.run(
            [sys.executable, "-m", "docs.site.notebooks", str(file)],
            cwd=folder,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"A block has failed; each must run after those before it.\n{done.stderr}")
        shown = json.loads(file.read_text())
    return [Output(text.replace(f"{folder}/", ""), [Picture(*one) for one in drawn]) for text, drawn in shown]


def with_outputs(text: str, outputs: Sequence[Output]) -> str:
    """Return the Markdown of a page with what its blocks have shown below each."""
    remaining = iter(outputs)

    def shown(block: re.Match[str]) -> str:
        printed, drawn = next(remaining)
        parts = [block[0]]
        if printed.strip():
            parts.append(f"```{{code-block}} none\n:class: output\n\n{printed.rstrip()}\n```\n")
        parts += [
            f'<p class="output"><img alt="{escape(one.about)}" src="data:image/png;base64,{one.png}"></p>\n'
            for one in drawn
        ]
        return "\n".join(parts)

    return BLOCK.sub(shown, text)


def as_jupyter(text: str, outputs: Sequence[Output]) -> str:
    """Return a page as a file of Jupyter, of format 4.5, with the outputs of its blocks."""
    cells: list[dict[str, object]] = []
    for i, part in enumerate(BLOCK.split(text)):  # prose and code in turn
        of_cell: dict[str, object] = {"id": f"cell-{i}", "metadata": {}, "source": part.strip()}
        if i % 2:
            printed, drawn = outputs[i // 2]
            shown: list[dict[str, object]] = []
            if printed:
                shown.append({"output_type": "stream", "name": "stdout", "text": printed})
            shown += [{"output_type": "display_data", "data": {"image/png": one.png}, "metadata": {}} for one in drawn]
            cells.append({"cell_type": "code", "execution_count": i // 2 + 1, "outputs": shown, **of_cell})
        elif part.strip():
            cells.append({"cell_type": "markdown", **of_cell})
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return json.dumps({"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5})


def show(app: Sphinx, name: str, content: list[str]) -> None:
    """Put the outputs into the text of a notebook that is being read, and write its file for Jupyter."""
    if name in NOTEBOOKS:
        text = content[0]
        outputs = outputs_of([block[1] for block in BLOCK.finditer(text)])
        file = Path(app.outdir, f"{name}.ipynb")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(as_jupyter(text, outputs))
        title, _, rest = with_outputs(text, outputs).partition("\n")
        take = f'<p class="take"><a href="{file.name}" download>Take it along as a Jupyter notebook</a></p>'
        content[0] = f"{title}\n\n{take}\n{rest}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("source-read", show)
    return {"parallel_read_safe": True}


if __name__ == "__main__":  # in the process of a notebook
    cells = Path(sys.argv[1])
    cells.write_text(json.dumps(run_blocks(json.loads(cells.read_text()))))

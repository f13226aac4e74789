"""Tables as text and as HTML, by which results are shown."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import Any

#: The most rows and columns that are shown.
_ROWS, COLUMNS = 20, 8


def _shown(rows: Iterable[Sequence[Any]], n_rows: int) -> tuple[list[list[str]], str]:
    """Return the cells of the first rows, and a line about the others."""
    cells = [[f"{value:.5g}" if isinstance(value, float) else str(value) for value in row] for row in islice(rows, _ROWS)]
    return cells, f"… and {n_rows - _ROWS} more" if n_rows > _ROWS else ""


def as_text(title: str, head: Sequence[str], rows: Iterable[Sequence[Any]], n_rows: int) -> str:
    """Return a table of aligned columns below its title."""
    cells, more = _shown(rows, n_rows)
    table = [list(head), *cells]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    return "\n".join([title, *lines, *([more] if more else [])])


def as_html(title: str, head: Sequence[str], rows: Iterable[Sequence[Any]], n_rows: int) -> str:
    """Return a table of HTML, for notebooks."""
    cells, more = _shown(rows, n_rows)
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in cells]
    heads = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    after = f"<p>{more}</p>" if more else ""
    return f"<p>{escape(title)}</p><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{after}"

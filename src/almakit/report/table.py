"""``Table``: columns with a name, heading, kind and help, and rows of plain values, rendered as text, Markdown, CSV,
LaTeX and HTML. All numbers are formatted here. No torch here."""

from __future__ import annotations

import csv
import io
import math
import textwrap
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape as html_escape
from typing import Any

from ..runs.store.records import plain_cell

NONE = "\u2013"
WIDTH = 100
"""Largest width of a table in a terminal, in characters."""
Row = dict[str, Any]
"""Cells by column name: a text, a number (also infinite), None if empty, or {value, low, high} with an interval."""


def percent(value: float | None, places: int = 1) -> str:
    """A share between 0 and 1 in percent, without the sign."""
    return NONE if value is None or math.isnan(value) else f"{100 * value:.{places}f}"


def figure(value: float | None, digits: int = 4) -> str:
    """A distance with a fixed number of digits; very small and very large ones with powers of ten."""
    if value is None or math.isnan(value):
        return NONE
    if math.isinf(value):
        return "\u221e"
    if value == 0:
        return "0"
    text = f"{value:#.{digits}g}" if 1e-3 <= abs(value) < 1e6 else f"{value:.{max(digits - 2, 0)}e}"
    return text.removesuffix(".")


def brief(value: float | None) -> str:
    """At most three significant digits, without trailing zeros."""
    return NONE if value is None or math.isnan(value) else f"{float(f'{value:.3g}'):g}"


def count(value: float | None) -> str:
    """An integer."""
    return NONE if value is None else f"{value:.0f}"


def with_interval(value: dict[str, float | None], kind: str = "share") -> str:
    """A number with its 95 % interval, for running text: ``95.0 % (90.1 to 97.6)``."""
    shown, low, high = Column("", "", kind).parts(value)
    sign = " %" if kind == "share" else ""
    return f"{shown}{sign} ({low} to {high})" if low else f"{shown}{sign}"


FORMATS: dict[str, Callable[[float | None], str]] = {
    "share": percent,
    "distance": figure,
    "number": brief,
    "count": count,
}


@dataclass(frozen=True)
class Column:
    """A column: its name, heading and format."""

    name: str  # key of the cells, and heading in CSV
    head: str  # heading for people
    kind: str = "text"  # text, or one of FORMATS
    shown: str = "main"  # main: everywhere; detail: not in short tables; csv: in CSV alone
    help: str = ""  # help text below a table or as a tooltip
    bold: str = ""  # "smallest": the smallest value is bold if several rows have a value
    interval: bool = True  # whether to show intervals
    csv: bool = True  # whether CSV has it
    tip: str = ""  # name of the column that contains the tooltips

    @property
    def order(self) -> str:
        """The order of the first click on the heading: ``down`` for shares, the largest first."""
        return "down" if self.kind == "share" else "up"

    @property
    def unit(self) -> str:
        return "%" if self.kind == "share" and "%" not in self.head else ""

    def parts(self, cell: Any) -> tuple[str, str, str]:
        """A cell's value and the ends of its interval; None without an interval."""
        if isinstance(cell, dict):
            ends = (cell["low"], cell["high"]) if self.interval and cell["value"] is not None else (None, None)
            if ends == (None, None):
                return self.text(cell["value"]), "", ""
            # In a median's interval, None means infinite.
            low, high = (self.text(math.inf if end is None else end) for end in ends)
            return self.text(cell["value"]), low, high
        return self.text(cell), "", ""

    def text(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        if self.kind == "text" or value is None:
            return NONE if value is None else str(value)
        return FORMATS[self.kind](value)

    def sort_key(self, cell: Any) -> str:
        """The number for sorting, empty if there is none."""
        value = cell["value"] if isinstance(cell, dict) else cell
        return "" if value is None or isinstance(value, str) or math.isinf(value) else repr(float(value))


@dataclass(frozen=True)
class Table:
    """Columns and rows. The last ``footer`` rows summarise the others and stay last."""

    columns: tuple[Column, ...]
    rows: list[Row]
    title: str = ""
    tex_title: str = ""
    notes: tuple[str, ...] = ()
    footer: int = 0
    kind: str = "results"  # its class in HTML

    def visible(self, detail: bool = True) -> list[Column]:
        """The columns in which any row has a value."""
        kinds = ("main", "detail") if detail else ("main",)
        return [
            column
            for column in self.columns
            if column.shown in kinds and any(_known(row.get(column.name)) for row in self.rows)
        ]

    def bold(self, column: Column) -> set[int]:
        """Indices of the rows whose cell is bold."""
        if column.bold != "smallest":
            return set()
        known = {
            place: value
            for place, row in enumerate(self.rows[: len(self.rows) - self.footer])
            if (value := _value(row.get(column.name))) is not None and math.isfinite(value)
        }
        return (
            {place for place, value in known.items() if value <= min(known.values())} if len(self.rows) > 1 else set()
        )

    def text(self, detail: bool = False, width: int = WIDTH) -> str:
        """Text for a terminal, at most ``width`` wide. If necessary, intervals go below their values and the last
        columns into a second table."""
        columns = self.visible(detail)
        header = [f"{column.head} {column.unit}".strip() for column in columns]
        left = [place for place, column in enumerate(columns) if column.kind == "text"]
        found = ""
        for form in (" ({} to {})", "\n{}-{}"):
            rows = [[_plain(column, row.get(column.name), form) for column in columns] for row in self.rows]
            found = text_table(header, rows, left, width)
            if "\n\n" not in found and (not width or max(map(len, found.splitlines())) <= width):
                break
        return "\n".join([*([self.title] if self.title else []), found, *self.notes])

    def markdown(self) -> str:
        columns = self.visible()
        heads = [_md(f"{column.head} {column.unit}".strip()) for column in columns]
        lines = [f"**{_md(self.title)}**", ""] if self.title else []
        lines += [_line(heads), _line([":--" if column.kind == "text" else "--:" for column in columns])]
        bold = {column.name: self.bold(column) for column in columns}
        for place, row in enumerate(self.rows):
            cells = [_md(_joined(column, row.get(column.name))) for column in columns]
            lines.append(
                _line(
                    [f"**{cell}**" if place in bold[c.name] else cell for c, cell in zip(columns, cells, strict=True)]
                )
            )
        return "\n".join([*lines, *(f"\n{_md(note)}" for note in self.notes)]) + "\n"

    def csv(self) -> str:
        """CSV with all digits. An empty distance is infinite; any other empty number is not defined."""
        return comma_separated([self])

    def latex(self) -> str:
        """A LaTeX table as wide as the page, scaled down if it is wider; needs the packages booktabs and graphicx."""
        columns = self.visible(detail=False)
        heads = [_tex_head(column) for column in columns]
        bold = {column.name: self.bold(column) for column in columns}
        lines = [
            r"\begin{table*}",
            r"  \centering\footnotesize",
            rf"  \caption{{{self.tex_title or escape(self.title)}}}",
            r"  \resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",
            rf"  \begin{{tabular}}{{{''.join('l' if column.kind == 'text' else 'r' for column in columns)}}}",
            r"  \toprule",
            f"  {' & '.join(heads)} \\\\",
            r"  \midrule",
        ]
        for place, row in enumerate(self.rows):
            if self.footer and place == len(self.rows) - self.footer:
                lines.append(r"  \midrule")
            cells = [_tex_cell(column, row.get(column.name), place in bold[column.name]) for column in columns]
            lines.append(f"  {' & '.join(cells)} \\\\")
        return "\n".join([*lines, r"  \bottomrule", r"  \end{tabular}}", r"\end{table*}", ""])

    def html(self) -> str:
        """An HTML table that can be sorted by its headings. All texts are escaped."""
        columns = self.visible()
        bold = {column.name: self.bold(column) for column in columns}
        label = html_escape(self.title)
        lines = [f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">']
        caption = f"<caption>{label}</caption>" if label else ""
        lines += [f'<table class="sortable {self.kind}">{caption}<thead><tr>']
        for column in columns:
            unit = f" <small>{column.unit}</small>" if column.unit else ""
            tip = f' title="{html_escape(column.help)}"' if column.help else ""
            sort = f' data-sort="{column.order}"'
            text = ' class="text"' if column.kind == "text" else ""
            name = f'<th scope="col"{text} data-name="{column.name}"{sort}{tip}>'
            lines.append(f"{name}{html_escape(column.head)}{unit}</th>")
        lines.append("</tr></thead><tbody>")
        for place, row in enumerate(self.rows):
            start = '<tr class="together">' if place >= len(self.rows) - self.footer else "<tr>"
            cells = [_html_cell(column, row, place in bold[column.name], column is columns[0]) for column in columns]
            lines.append(f"{start}{''.join(cells)}</tr>")
        lines.append("</tbody></table></div>")
        return "\n".join(lines)


def comma_separated(tables: Sequence[Table]) -> str:
    """One CSV file of several tables, with the columns of all of them; missing cells are empty."""
    with_ends: dict[str, bool] = {}
    for table in tables:
        for column in (column for column in table.columns if column.csv):
            ends = any(isinstance(row.get(column.name), dict) for row in table.rows)
            with_ends[column.name] = with_ends.get(column.name, False) or ends
    heads = [head for name, ends in with_ends.items() for head in (name, f"{name}_low", f"{name}_high")[: 1 + 2 * ends]]
    out = io.StringIO()
    writer = csv.DictWriter(out, heads, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in (row for table in tables for row in table.rows):
        cells: Row = {}
        for name, cell in row.items():
            value = cell if isinstance(cell, dict) else {"value": cell, "low": None, "high": None}
            cells |= {name: value["value"], f"{name}_low": value["low"], f"{name}_high": value["high"]}
        writer.writerow({head: _csv(cells[head]) for head in heads if head in cells})
    return out.getvalue()


def latex(tables: Sequence[Table]) -> str:
    """LaTeX source with all tables and a comment about the packages they need."""
    return "\n".join(["% needs \\usepackage{booktabs,graphicx}", *(table.latex() for table in tables)])


def text_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], left: Sequence[int] = (0,), width: int = 0
) -> str:
    """Aligned text columns under a header: columns in ``left`` are left-aligned, the others right-aligned.

    With ``width``, the widest columns in ``left`` are wrapped until the table fits. Columns that still do not fit go
    into another table below, which repeats the first column.
    """
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    places = range(len(header))
    full = [max((len(line) for row in cells[1:] for line in row[place].split("\n")), default=0) for place in places]
    words = [max(len(word) for row in cells for word in row[place].split() or [""]) for place in places]
    # With wrapping, a heading does not widen its column.
    widths = [max(full[k], words[k] if width else len(header[k])) for k in places]
    least = [words[k] if k in left else widths[k] for k in places]
    while width and sum(widths) + 2 * (len(widths) - 1) > width:
        wide = [(widths[k], k) for k in places if widths[k] > least[k]]
        if not wide:
            break
        widths[max(wide)[1]] -= 1
    parts, used = [[0]], widths[0]
    for place in places[1:]:
        if width and used + 2 + widths[place] > width and len(parts[-1]) > 1:
            parts.append([0])
            used = widths[0]
        parts[-1].append(place)
        used += 2 + widths[place]
    return "\n\n".join(_lines(cells, part, widths, left) for part in parts)


def _lines(cells: Sequence[Sequence[str]], places: Sequence[int], widths: Sequence[int], left: Sequence[int]) -> str:
    lines = []
    for number, row in enumerate(cells):
        parts = [_wrapped(row[place], widths[place]) for place in places]
        height = max(map(len, parts))
        if number == 0:  # headings are aligned at the bottom
            parts = [[""] * (height - len(part)) + part for part in parts]
        for line in range(height):
            texts = [part[line] if line < len(part) else "" for part in parts]
            aligned = [
                text.ljust(widths[place]) if place in left else text.rjust(widths[place])
                for place, text in zip(places, texts, strict=True)
            ]
            lines.append("  ".join(aligned).rstrip())
        if number == 0:
            lines.append("  ".join("-" * widths[place] for place in places))
    return "\n".join(lines)


def _wrapped(text: str, width: int) -> list[str]:
    return [
        line
        for part in text.split("\n")
        for line in textwrap.wrap(part, width, break_long_words=False, break_on_hyphens=False) or [""]
    ]


def _value(cell: Any) -> float | None:
    value = cell["value"] if isinstance(cell, dict) else cell
    return None if isinstance(value, str) else value


def _known(cell: Any) -> bool:
    return (cell["value"] if isinstance(cell, dict) else cell) not in (None, "")


def _joined(column: Column, cell: Any, form: str = " ({} to {})") -> str:
    value, low, high = column.parts(cell)
    return value + form.format(low, high) if low else value


def _plain(column: Column, cell: Any, form: str) -> str:
    """A cell for a terminal; numbers in ASCII."""
    return _joined(column, cell, form).replace(NONE, "-").replace("\u221e", "inf")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def plain(value: Any) -> Any:
    """A value as JSON has it: null where a number is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _md(text: str) -> str:
    for character in "\\`*_[]":
        text = text.replace(character, "\\" + character)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("|", "\\|").replace("\n", " ")


def _csv(value: Any) -> str:
    if isinstance(value, str):
        return str(plain_cell(value))
    return "" if value is None or math.isinf(value) else repr(value if isinstance(value, int) else float(value))


def _html_cell(column: Column, row: Row, bold: bool, head: bool) -> str:
    cell = row.get(column.name)
    value, low, high = (html_escape(_powers(part, _superscript)) for part in column.parts(cell))
    tip = str(row.get(column.tip) or "") if column.tip else ""
    if isinstance(cell, dict) and "images" in cell:
        tip = f"{cell['images']} images"
    title = f' title="{html_escape(tip)}"' if tip else ""
    if head:
        return f'<th scope="row"{title}>{value}</th>'
    if column.kind == "text":
        return f'<td class="text"{title}>{value}</td>'
    interval = f'<small class="interval below">{low} to {high}</small>' if low else ""
    shown = f"<b>{value}</b>" if bold else value
    return f'<td data-v="{column.sort_key(cell)}"{title}><span class="value">{shown}</span>{interval}</td>'


def _superscript(mantissa: str, exponent: int) -> str:
    return f"{mantissa}\u00b710{str(exponent).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def _powers(text: str, written: Callable[[str, int], str]) -> str:
    """Write powers of ten (1.2e-05) by ``written``; other text is unchanged."""
    mantissa, e, exponent = text.partition("e")
    try:
        return written(mantissa, int(exponent)) if e and float(mantissa) is not None else text
    except ValueError:
        return text


def _tex_head(column: Column) -> str:
    """A heading, in two lines where it has several words."""
    text = f"{column.head} ({column.unit})" if column.unit else column.head
    words = text.split(" ")
    places = range(1, len(words))
    best = min(places, key=lambda place: abs(len(" ".join(words[:place])) - len(" ".join(words[place:]))), default=0)
    if not best:
        return escape(text)
    side = "l" if column.kind == "text" else "r"
    lines = " ".join(words[:best]), " ".join(words[best:])
    return rf"\shortstack[{side}]{{{escape(lines[0])}\\{escape(lines[1])}}}"


def _tex_cell(column: Column, cell: Any, bold: bool) -> str:
    value, low, high = (
        _powers(part, lambda mantissa, exponent: f"${mantissa}\\cdot 10^{{{exponent}}}$") for part in column.parts(cell)
    )
    value, low, high = (part if part.startswith("$") else escape(part) for part in (value, low, high))
    shown = rf"\textbf{{{value}}}" if bold else value
    return rf"{shown} {{\scriptsize [{low}, {high}]}}" if low else shown


_SPECIAL = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "\u00d7": r"$\times$",
    "\u2113": r"$\ell$",
    "\u221e": r"$\infty$",
    "\u03b5": r"$\epsilon$",
    "\u2264": r"$\leq$",
    "\u2192": r"$\to$",
    "\u2212": "$-$",
    "\u2013": "--",
    "\n": " ",
}


def escape(text: str) -> str:
    """``text`` as ASCII LaTeX: special characters are escaped, accents and control characters are removed, and unknown
    characters become question marks."""
    return "".join(_SPECIAL.get(character) or _ascii(character) for character in text)


def _ascii(character: str) -> str:
    if not character.isprintable():
        return ""
    if character.isascii():
        return character
    plain = "".join(part for part in unicodedata.normalize("NFKD", character) if part.isascii())
    return escape(plain) if plain else "?"

"""The type of a column of texts: whole numbers, other numbers, truth values, dates, or texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute  # its functions are made at run time, where a type checker does not see them

NEARLY = 0.9  # share of the cells that are numbers from which on a column of texts is called nearly numeric
HOPELESS = 0.5  # share of the first cells below which a form is tried no longer
EXACT = pa.decimal128(38, 0)  # whole numbers whose digits neither int64 nor float64 hold
_ZONED = pa.timestamp("ns", "UTC")
# What a column of texts is read as: the first of these that fits its values so far, and what may come after it. Each
# reads all that those before it in its line have read, so that no earlier row has to be read again.
WIDER = {
    pa.null(): (pa.int64(), EXACT, pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("ns"), _ZONED, pa.string()),
    pa.int64(): (EXACT, pa.float64(), pa.string()),
    EXACT: (pa.float64(), pa.string()),
    pa.float64(): (pa.string(),),
    pa.bool_(): (pa.string(),),
    pa.date32(): (pa.timestamp("ns"), pa.string()),
    pa.timestamp("ns"): (pa.string(),),
    _ZONED: (pa.string(),),
}
NUMERIC = (pa.int64(), EXACT, pa.float64())
# Cells that stand for a missing value in a column of numbers or dates. In a column of texts they are texts like others.
# fmt: off
STRAY = pa.array([
    "", "?", "-", "--", "---", ".", "..", "*", "\u2013", "\u2014", "n.a.", "n.a", "n/a", "na", "nan", "nil", "none",
    "null", "(null)", "\\n", "<na>", "nat", "missing", "unknown", "#n/a", "#value!", "#div/0!", "#ref!", "#num!",
    "#name?",
])
# fmt: on
_SPACE = "\\s\\x{00A0}\\x{2009}\\x{202F}"
_QUOTES = "'\\x{2019}"
_MONEY = "(?:[$€£¥₹₽]|USD|EUR|GBP|CHF|JPY|INR|SEK|NOK|DKK|PLN|kr|zł)"
_SIGN = "[-+\\x{2212}]?"


def _number(thousands: str, decimal: str) -> str:
    whole = f"\\d{{1,3}}(?:[{thousands}{_QUOTES}{_SPACE}]\\d{{3}})+|\\d+"
    digits = f"(?:(?:{whole})(?:{decimal}\\d*)?|{decimal}\\d+)(?:[eE][-+]?\\d+)?"
    marked = f"{_SIGN}{_MONEY}?[{_SPACE}]?{_SIGN}{digits}[{_SPACE}]?(?:%|{_MONEY})?"
    return f"^(?:{marked}|\\({marked}\\))$"


NUMBERS = {".": _number(",", "\\."), ",": _number("\\.", ",")}
DATES = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%Y.%m.%d", "%d-%m-%Y", "%m-%d-%Y", "%d %b %Y", "%d-%b-%Y")
DATES += ("%b %d, %Y", "%d.%m.%y", "%m/%d/%y", "%d/%m/%y")
TIMES = ("", " %H:%M", " %H:%M:%S")


# Numbers and dates out of texts


def is_stray(texts: pa.Array) -> pa.Array:
    """Which cells stand for a missing value; a cell that is missing is one."""
    lowered = pc.utf8_lower(pc.utf8_trim_whitespace(texts))
    return pc.or_(pc.is_null(texts), pc.fill_null(pc.is_in(lowered, value_set=STRAY), True))


def marked_numbers(texts: pa.Array, decimal: str) -> pa.Array:
    """Numbers written with thousands separators, currency, percent or brackets; null where a cell is none.

    Args:
        texts: the cells.
        decimal: "." or ",", before the decimals; the other one separates thousands.

    Example:
        >>> marked_numbers(pa.array(["1.234,50 €", "25 %", "(3)", "many"]), ",").to_pylist()
        [1234.5, 0.25, -3.0, None]
    """
    cells = pc.utf8_trim_whitespace(texts)
    right = pc.fill_null(pc.match_substring_regex(cells, NUMBERS[decimal]), False)
    cells = pc.if_else(right, cells, None)
    percent, bracket = pc.ends_with(cells, "%"), pc.starts_with(cells, "(")
    digits = pc.replace_substring_regex(cells, _MONEY, "")
    digits = pc.replace_substring_regex(digits, f"[{_SPACE}{_QUOTES}%()]", "")
    digits = pc.replace_substring(pc.replace_substring(digits, "\u2212", "-"), "," if decimal == "." else ".", "")
    digits = pc.replace_substring(digits, ",", ".") if decimal == "," else digits
    values = pc.replace_substring_regex(digits, "^[+]", "").cast(pa.float64())
    values = pc.if_else(percent, pc.divide(values, 100.0), values)
    return pc.if_else(bracket, pc.negate(values), values)


def numbers_in_texts(texts: pa.Array, decimal: str) -> pa.Array:
    """Numbers, plain or with marks; null where a cell is missing or no number."""
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        return _plain_or_marked(pc.utf8_trim_whitespace(texts), decimal)


def _plain_or_marked(cells: pa.Array, decimal: str) -> pa.Array:
    if decimal == ".":
        try:  # spaces around numbers are common where columns were lined up
            return cells.cast(pa.float64())
        except pa.ArrowInvalid:
            pass
    endless = pc.is_in(pc.utf8_lower(cells), value_set=pa.array(["inf", "-inf", "infinity", "-infinity"]))
    return pc.if_else(pc.fill_null(endless, False), None, marked_numbers(cells, decimal))


def dates_in_texts(texts: pa.Array, form: str) -> pa.Array:
    """Timestamps of a form such as "%d.%m.%Y"; null where a cell is none."""
    cells = pc.utf8_trim_whitespace(texts)
    found = pc.strptime(cells, format=form, unit="s", error_is_null=True)
    # Beyond these years a slip in a cell would stretch all differences between dates.
    year = pc.year(found)
    return pc.if_else(pc.and_(pc.greater_equal(year, 1000), pc.less(year, 3000)), found, None)


@dataclass(frozen=True)
class Meaning:
    """How the texts of a column are read.

    Attributes:
        type: the type of the values.
        decimal: "." or "," where they are numbers with marks.
        form: the form of dates that are not written as ISO 8601 has them.
    """

    type: pa.DataType
    decimal: str | None = None
    form: str | None = None

    def values(self, texts: pa.Array) -> pa.Array:
        """The values of some cells."""
        if self.decimal is not None:
            return numbers_in_texts(texts, self.decimal)
        if self.form is not None:
            return dates_in_texts(texts, self.form)
        return from_texts(texts, self.type)


def from_texts(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts as values of a type that fits them."""
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        # Trimming all values costs time, hence only then.
        return pc.utf8_trim_whitespace(column).cast(kind)


def fitting_type(column: pa.Array, current: pa.DataType) -> pa.DataType:
    """The type that fits these texts and all those that `current` fits."""
    if current == pa.string() or column.null_count == len(column):
        return current
    for candidate in (current, *WIDER[current]):
        if candidate != pa.null() and (candidate == pa.string() or _fits(column, candidate)):
            return candidate
    raise AssertionError("every column fits texts")


def _fits(column: pa.Array, kind: pa.DataType) -> bool:
    try:
        from_texts(column, kind)
    except pa.ArrowInvalid:
        return False
    # Arrow reads 1.0 and 1e3 as decimals too; they are no whole numbers that need all their digits.
    return kind != EXACT or not pc.any(pc.match_substring_regex(column, "[.eE]")).as_py()


# Learning what a column means


@dataclass
class TextColumn:
    """The texts of one column, counted piece by piece.

    Attributes:
        plain: the type that fits all cells as they are written.
        cells: cells that are not missing, not even by a mark such as "?".
        numbers: cells that are numbers, by the sign before the decimals; without an entry it was given up.
        dates: cells that are dates, by their form.
        others: some of the cells that are no numbers.
        stray: cells that are marks such as "?".
    """

    plain: pa.DataType = field(default_factory=pa.null)
    cells: int = 0
    numbers: dict[str, int] = field(default_factory=lambda: {".": 0, ",": 0})
    dates: dict[str, int] | None = None
    others: list[str] = field(default_factory=list)
    stray: int = 0

    def add_(self, column: pa.Array) -> None:
        """Count some more cells."""
        present = len(column) - column.null_count
        self.plain = fitting_type(column, self.plain)
        if self.plain == pa.null():
            return
        if self.plain != pa.string():
            self.cells += present
            if self.plain in NUMERIC:
                self.numbers["."] += present
                self.numbers[","] += present if self.plain == pa.int64() else 0
            else:
                self.numbers = {}
            return
        if not self.numbers and not (self.dates is None or self.dates):
            self.cells += present
            return
        column = column.filter(pc.invert(is_stray(column)))
        self.stray += present - len(column)
        self.cells += len(column)
        self._count_numbers_(column)
        self._count_dates_(column)

    def count_commas_(self, column: pa.Array) -> None:
        """Count the cells of a column of plain numbers that are numbers with a decimal comma too, such as "1.234"."""
        found = marked_numbers(column, ",")
        self.numbers[","] += len(found) - found.null_count

    def _count_numbers_(self, column: pa.Array) -> None:
        for decimal in list(self.numbers):
            found = numbers_in_texts(column, decimal)
            self.numbers[decimal] += len(found) - found.null_count
            if len(self.others) < 3:
                wrong = column.filter(pc.is_null(found)) if decimal == "." or "." not in self.numbers else []
                self.others += pc.unique(wrong).to_pylist()[:3] if len(wrong) else []
            if self.numbers[decimal] < HOPELESS * self.cells:
                del self.numbers[decimal]

    def _count_dates_(self, column: pa.Array) -> None:
        if self.dates is None and len(column):
            first = column.slice(0, 1)
            forms = [date + time for date in DATES for time in TIMES]
            self.dates = {form: 0 for form in forms if dates_in_texts(first, form).null_count == 0}
        for form in list(self.dates or ()):
            found = dates_in_texts(column, form)
            self.dates[form] += len(found) - found.null_count  # type: ignore[index]
            if found.null_count:
                del self.dates[form]  # type: ignore[union-attr]

    @property
    def prefers(self) -> str | None:
        """The sign before decimals, where the cells tell it."""
        point, comma = self.numbers.get(".", 0), self.numbers.get(",", 0)
        return None if point == comma else "." if point > comma else ","

    def meaning(self, prefers: str, *, forced: str | None = None) -> Meaning:
        """How the column is read.

        Args:
            prefers: the sign before decimals of the other columns, where this one does not tell.
            forced: "numeric" or "categorical", where the user said so.
        """
        decimal = self.prefers or prefers
        if forced == "categorical" or self.plain == pa.null():
            return Meaning(pa.string() if self.plain == pa.string() else self.plain)
        if self.plain != pa.string():
            whole = self.cells and self.numbers.get(",") == self.cells
            if self.plain == pa.float64() and decimal == "," and whole:
                return Meaning(pa.float64(), decimal)  # "1.234" beside columns of numbers such as "0,5"
            return Meaning(self.plain)
        if forced == "numeric" or (self.cells and self.numbers.get(decimal) == self.cells):
            return Meaning(pa.float64(), decimal)
        if self.dates and self.cells:
            return Meaning(pa.timestamp("s"), form=next(iter(self.dates)))
        return Meaning(pa.string())

    def remark(self, name: str, meaning: Meaning) -> tuple[str, str] | None:
        """What should be said of the column, with its kind; None where nothing is remarkable."""
        decimal = meaning.decimal or self.prefers or "."
        wrong, shown = self.cells - self.numbers.get(decimal, 0), ", ".join(repr(text[:20]) for text in self.others[:3])
        if meaning.type == pa.string() and self.numbers.get(decimal, 0) >= NEARLY * self.cells > 0:
            text = (
                f"column {name!r} is nearly numeric: {wrong:,} of {self.cells:,} cells are no numbers ({shown}), so it "
                f"is read as categories; --numeric {name!r} reads it as numbers, with those cells missing"
            )
            return "nearly numeric", text
        if meaning.decimal is not None and wrong:
            text = f"column {name!r}: {wrong:,} of {self.cells:,} cells are no numbers and count as missing ({shown})"
            return "not numbers", text
        if meaning.form and self.dates and len({form.replace(":%S", "") for form in self.dates}) > 1:
            order = "day" if meaning.form.startswith("%d") else "month"
            return "dates", f"the dates of column {name!r} are read with the {order} first, which they do not tell"
        return None


def decimal_of(columns: Iterable[TextColumn]) -> str:
    """The sign before decimals in most of the columns that tell it."""
    votes = [column.prefers for column in columns if column.plain == pa.string()]
    return "," if votes.count(",") > votes.count(".") else "."

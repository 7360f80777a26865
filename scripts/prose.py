"""Check that the pages read well and that files and functions stay short: `python scripts/prose.py [--prose] [--code]`.

The prose check counts the words of every sentence in README.md and docs/. Tables, code blocks, headings and pictures do
not count, and inline code is one word. A sentence may have 35 words, and the median of a page may be 18.

The code check counts lines. A file in src may have 400 lines, unless one of its first ten lines has the comment
`long file: reason`. A function may have 50, unless `# long: reason` is on its `def` line or on the line above it.
"""

import argparse
import ast
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MOST_WORDS, HIGHEST_MEDIAN = 35, 18
MOST_FILE_LINES, MOST_FUNCTION_LINES, LINES_FOR_REASON = 400, 50, 10
SOURCE_SUFFIXES = frozenset({".py", ".pyi", ".h", ".cpp", ".js", ".css", ".html"})

LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
NO_PROSE = re.compile(r"\s*(?:$|\||#{1,6}\s|\[[^\]]+\]:\s)")
FENCE = re.compile(r"\s*(```|~~~)")
# They end in a period, but no sentence ends there.
ABBREVIATIONS = frozenset({"e.g.", "i.e.", "vs.", "cf.", "approx.", "al."})
SENTENCE_END = re.compile(r"(?<!\.\.)[.!?][\"')\]]*$")
FILE_REASON = re.compile(r"(?:#|//|/\*|<!--)\s*long file:\s*\w")
FUNCTION_REASON = re.compile(r"#\s*long:\s*\w")


class Block(NamedTuple):
    """A paragraph or list item."""

    line: int
    text: str


class Sentence(NamedTuple):
    line: int
    words: list[str]


def main(arguments: list[str] | None = None) -> int:
    """Print every fault with its place; 1 if there are any."""
    parser = argparse.ArgumentParser(description="Check the length of sentences, files and functions.")
    parser.add_argument("--prose", action="store_true", help="check README.md and docs/ only")
    parser.add_argument("--code", action="store_true", help="check src/ only")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="the repository")
    options = parser.parse_args(arguments)
    everything = options.prose == options.code
    faults: list[str] = []
    if everything or options.prose:
        faults += prose_faults(options.root)
    if everything or options.code:
        faults += code_faults(options.root)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


def prose_faults(root: Path) -> list[str]:
    faults = []
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        name = page.relative_to(root).as_posix()
        faults += [f"{name}:{fault}" for fault in page_faults(page.read_text(encoding="utf-8"))]
    return faults


def page_faults(text: str) -> Iterator[str]:
    lengths = []
    for line, words in sentences(text):
        lengths.append(len(words))
        if len(words) > MOST_WORDS:
            start = " ".join(words[:8])
            yield f"{line}: {len(words)} words in a sentence, at most {MOST_WORDS}: {start} ..."
    if lengths and statistics.median(lengths) > HIGHEST_MEDIAN:
        yield f"1: {statistics.median(lengths):g} words in the median sentence, at most {HIGHEST_MEDIAN}"


def code_faults(root: Path) -> list[str]:
    faults = []
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in SOURCE_SUFFIXES:
            continue
        name, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        lines = text.splitlines()
        if len(lines) > MOST_FILE_LINES and not any(map(FILE_REASON.search, lines[:LINES_FOR_REASON])):
            faults.append(f"{name}:1: {len(lines)} lines in a file, at most {MOST_FILE_LINES}")
        if path.suffix == ".py":
            faults += [f"{name}:{fault}" for fault in function_faults(text)]
    return faults


def function_faults(text: str) -> Iterator[str]:
    lines = ["", *text.splitlines()]
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        reasons = (lines[node.lineno], lines[node.lineno - 1], lines[first - 1])
        if length > MOST_FUNCTION_LINES and not any(map(FUNCTION_REASON.search, reasons)):
            yield f"{node.lineno}: {length} lines in {node.name}, at most {MOST_FUNCTION_LINES}"


def sentences(text: str) -> Iterator[Sentence]:
    """The sentences of a Markdown page. The end of a paragraph or list item ends a sentence too."""
    for block in blocks(text):
        words: list[str] = []
        start = block.line
        for number, line in enumerate(plain(block.text).split("\n"), start=block.line):
            for word in line.split():
                if not words:
                    start = number
                words.append(word)
                if SENTENCE_END.search(word) and word not in ABBREVIATIONS:
                    yield from counted(start, words)
                    words = []
        yield from counted(start, words)


def counted(line: int, words: list[str]) -> Iterator[Sentence]:
    """A sentence of these words without lone signs, such as dashes, unless nothing is left."""
    kept = [word for word in words if any(character.isalnum() for character in word)]
    if kept:
        yield Sentence(line, kept)


def blocks(text: str) -> Iterator[Block]:
    """Paragraphs and list items of a page, without code, tables, headings and HTML."""
    text = re.sub(r"<!--.*?-->", same_lines(""), text, flags=re.DOTALL)
    text = re.sub(r"</?[a-zA-Z][^<>\n]*>", "", text)
    block = Block(0, "")
    for number, line in enumerate([*without_code(text), ""], start=1):
        item, other = LIST_ITEM.match(line), NO_PROSE.match(line)
        if block.text and (item or other):
            yield block
        if item or other or not block.text:
            block = Block(number, "" if other else line[item.end() if item else 0 :])
        else:
            block = Block(block.line, f"{block.text}\n{line}")


def without_code(text: str) -> Iterator[str]:
    """The lines of a page, empty where they are code between fences or code by indentation."""
    fence, in_list, may_be_code = "", False, True
    for line in text.splitlines():
        mark = FENCE.match(line)
        if fence or mark:
            ends = mark and mark[1] == fence
            fence = "" if ends else fence or (mark[1] if mark else "")
            yield ""
        elif may_be_code and not in_list and line.startswith("    "):
            yield ""
        else:
            blank = not line.strip()
            # What follows a blank line and is not indented is a paragraph after the list.
            in_list = bool(LIST_ITEM.match(line)) or (in_list and (blank or line.startswith(" ") or not may_be_code))
            may_be_code = blank
            yield line


def plain(text: str) -> str:
    """The words of a block: inline code is one word, a link its text, a picture nothing."""
    text = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", same_lines("Code"), text, flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", same_lines(""), text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[*_]+", "", text)


def same_lines(word: str):
    """A replacement that keeps the line breaks, so that the numbers of lines stay."""
    return lambda match: word + "\n" * match[0].count("\n")


if __name__ == "__main__":
    sys.exit(main())

"""The sets of texts as they were published: the texts, the names of their labels, and the part each belongs to."""

import gzip
import re
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Texts(NamedTuple):
    """Texts with their labels.

    Attributes:
        texts: one string per row.
        names: the labels of each row, by name.
        parts: "train", "dev" or "test" per row, as published; all "train" where nothing was published.
    """

    texts: list[str]
    names: list[list[str]]
    parts: list[str]


def goemotions(folder: Path) -> Texts:
    """Comments with 28 emotions, named by their numbers, in the parts of the authors."""
    found = Texts([], [], [])
    for part in ("train", "dev", "test"):
        lines = read_tsv(folder / "goemotions" / f"{part}.tsv.gz")
        found.texts.extend(line[0] for line in lines)
        found.names.extend(line[1].split(",") for line in lines)
        found.parts.extend([part] * len(lines))
    return found


def reuters(folder: Path) -> Texts:
    """Title and body of the documents of ModApte's split, with their topics."""
    found = Texts([], [], [])
    with tarfile.open(folder / "reuters21578" / "reuters21578.tar.xz") as files:
        for member in files:
            file = files.extractfile(member) if member.name.endswith(".sgm") else None
            if file is None:
                continue
            for document in file.read().decode("latin-1").split("<REUTERS ")[1:]:
                opening = document[: document.index(">")]
                split = re.search('LEWISSPLIT="(TRAIN|TEST)"', opening)
                if 'TOPICS="YES"' in opening and split:
                    topics = re.findall("<TOPICS>(.*?)</TOPICS>", document)[0]
                    parts = re.findall("<(?:TITLE|BODY)>(.*?)</(?:TITLE|BODY)>", document, re.DOTALL)
                    found.texts.append(" ".join(parts))
                    found.names.append(re.findall("<D>(.*?)</D>", topics))
                    found.parts.append(split[1].lower())
    return found


def sms_spam(folder: Path) -> Texts:
    """Messages, some with the label spam."""
    lines = read_tsv(folder / "sms_spam" / "SMSSpamCollection.gz")
    names = [["spam"] if line[0] == "spam" else [] for line in lines]
    return Texts([line[1] for line in lines], names, ["train"] * len(lines))


def indicator(names: Sequence[Sequence[str]]) -> np.ndarray:
    """0/1 [n, L], labels in the order of their names."""
    places = {name: place for place, name in enumerate(sorted({name for row in names for name in row}))}
    Y = np.zeros((len(names), len(places)), np.int8)
    for row, given in zip(Y, names, strict=True):
        row[[places[name] for name in given]] = 1
    return Y


def read_tsv(path: Path) -> list[list[str]]:
    """The cells of a compressed file of tab-separated lines."""
    return [line.split("\t") for line in read_text(path).split("\n") if line]


def read_text(path: Path) -> str:
    """A compressed text."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read()

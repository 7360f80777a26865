"""The public suite: every set as raw columns and labels, and the preparation that is learned on training rows only.

What is done to all sets, so that a table can be read without reading this file:

- At most 50,000 rows with one label, 20,000 with several: one draw with a fixed seed, stratified where there is one
  label. Of several labels those with at least 20 positives are kept, and of these at most 100, evenly over frequency.
- Published splits of adult, a9a, goemotions, reuters21578 (ModApte's documents) and the Mulan sets are pooled. Of
  kddcup99 only the training file is used: its test file differs by design. Positive there: rare attacks, U2R and R2L.
- Missing numbers become the median of the training rows, with a 0/1 column that says so; categories become 0/1 columns,
  those with fewer than 50 training rows (and any not seen there) as one column; a missing category is a category.
- Text is hashed to 4,096 columns: counts of lower-case words, each row of length 1. SMILES the same way, by n-grams of
  1 to 3 characters, case kept. The words of rcv1sub1 come as 47,236 weighted columns, which are hashed by their number.
  Nothing is learned, and what is sparse stays so.

Getting the sets: mammography is OpenML 310; adult, htru2, diabetes130, polish_bankruptcy, sms_spam, kddcup99 and
reuters21578 are in the UCI archive under these names; a9a, w8a and ijcnn1 at the LIBSVM data page; adbench is
github.com/Minqi824/ADBench, adbench/datasets/Classical; moleculenet is HIV.csv of MoleculeNet; multilabel holds the
ARFF files of Mulan and MEKA as CSR parts; goemotions is google-research/goemotions. File names are in the loaders.
"""

import csv
import gzip
import io
import zipfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import TransformerMixin
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder, normalize

from benchmarks.shared import texts

MAX_ROWS, MAX_ROWS_MULTILABEL = 50_000, 20_000
MAX_LABELS, MIN_POSITIVES = 100, 20
MIN_CATEGORY_ROWS = 50
HASHED_FEATURES = 2**12
DRAW_SEED = 0

Features = np.ndarray | sparse.csr_matrix


class Rows(NamedTuple):
    """Raw columns and labels.

    Attributes:
        numbers: [n, d], nan where missing; or sparse.
        categories: [n, c] strings; c may be 0.
        labels: 0 or 1, [n, L]; L is 1 for the binary sets.
    """

    numbers: Features
    categories: np.ndarray
    labels: np.ndarray

    def take(self, index: np.ndarray) -> "Rows":
        """These rows."""
        return Rows(*(part[index] for part in self))


def load(name: str, folder: Path) -> Rows | None:
    """A set of the suite by name; None, after a printed line, when a file of it is absent."""
    try:
        return (BINARY | MULTILABEL)[name](folder)
    except FileNotFoundError as error:
        print(f"skipped {name}: no {error.filename} (set --data or AIMFOR_DATA; see benchmarks/shared/sets.py)")
        return None


def prepare(train: Rows, *others: Rows) -> list[Features]:
    """Features of the training rows, then of the others: what is learned is learned on the first."""
    if sparse.issparse(train.numbers):
        return [rows.numbers for rows in (train, *others)]
    imputer = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    parts = [_learned(imputer, [rows.numbers for rows in (train, *others)])]
    if train.categories.shape[1]:
        encoder = OneHotEncoder(
            min_frequency=MIN_CATEGORY_ROWS, handle_unknown="infrequent_if_exist", sparse_output=False
        )
        parts.append(_learned(encoder, [rows.categories for rows in (train, *others)]))
    return [np.hstack(columns) for columns in zip(*parts, strict=True)]


def _learned(transformer: TransformerMixin, parts: list[np.ndarray]) -> list[np.ndarray]:
    transformer.fit(parts[0])
    return [transformer.transform(part) for part in parts]


def split(rows: Rows, seed: int, test: float = 0.3, validation: float = 0.2) -> tuple[Rows, Rows, Rows]:
    """Rows that fit, choose and measure: 30 % measure, a fifth of the others choose; stratified for one label."""
    keep, measure = _split_index(rows.labels, np.arange(len(rows.labels)), test, seed)
    fit, choose = _split_index(rows.labels, keep, validation, seed)
    return rows.take(fit), rows.take(choose), rows.take(measure)


def _split_index(labels: np.ndarray, index: np.ndarray, share: float, seed: int) -> list[np.ndarray]:
    stratify = labels[index, 0] if labels.shape[1] == 1 else None
    return train_test_split(index, test_size=share, stratify=stratify, random_state=seed)


# Loaders. Each reads the files of one set; the first file that is absent raises FileNotFoundError.


def _mammography(folder: Path) -> Rows:
    cells = _read_csv(folder / "mammography" / "mammography.csv.gz")
    return _table(cells[:, :-1], cells[:, -1] == "'1'")


def _adult(folder: Path) -> Rows:
    cells = np.vstack([_read_csv(folder / "adult" / f"adult-{part}.csv.gz") for part in ("train", "test")])
    return _table(cells[:, :-1], np.char.startswith(cells[:, -1], ">50K"), categorical=(1, 3, 5, 6, 7, 8, 9, 13))


def _a9a(folder: Path) -> Rows:
    parts = [_read_svmlight(folder / "a9a" / file, 123) for file in ("a9a.gz", "a9a.t.gz")]
    return _sparse(sparse.vstack([X for X, _ in parts]), np.concatenate([y for _, y in parts]))


def _w8a(folder: Path) -> Rows:
    return _sparse(*_read_svmlight(folder / "w8a" / "w8a.gz", 300))


def _npz(path: str, folder: Path) -> Rows:
    with np.load(folder / path) as arrays:
        return _table(arrays["X"], arrays["y"] == 1)


def _htru2(folder: Path) -> Rows:
    cells = _read_csv(folder / "htru2" / "HTRU_2.csv.gz")[1:]
    return _table(cells[:, :-1], cells[:, -1] == "1")


def _diabetes130(folder: Path) -> Rows:
    path = folder / "diabetes130" / "dataset_diabetes.zip"
    with zipfile.ZipFile(path) as files, files.open("dataset_diabetes/diabetic_data.csv") as file:
        cells = np.array(list(csv.reader(io.TextIOWrapper(file))))
    header, cells = cells[0].tolist(), cells[1:]
    numeric = ("time_in_hospital", "num_lab_procedures", "num_procedures", "num_medications", "number_outpatient")
    numeric += ("number_emergency", "number_inpatient", "number_diagnoses")
    columns = [column for column in header if column not in ("encounter_id", "patient_nbr", "readmitted")]
    categorical = [place for place, column in enumerate(columns) if column not in numeric]
    return _table(
        cells[:, [header.index(column) for column in columns]],
        cells[:, header.index("readmitted")] == "<30",
        categorical=categorical,
    )


def _polish_bankruptcy(year: int, folder: Path) -> Rows:
    text = texts.read_text(folder / "polish_bankruptcy" / f"{year}year.arff.gz")
    cells = _cells(text[text.lower().index("@data") + len("@data") :].strip().splitlines())
    return _table(cells[:, :-1], cells[:, -1] == "1")


def _kddcup99(folder: Path) -> Rows:
    lines = np.array(texts.read_text(folder / "kddcup99" / "kddcup.data_10_percent.gz").split())
    labels = np.isin([line.rsplit(",", 1)[1].rstrip(".") for line in lines], RARE_ATTACKS)
    index = _draw(labels, MAX_ROWS)  # first, because half a million rows of strings would not be small
    return _table(_cells(lines[index])[:, :-1], labels[index], categorical=(1, 2, 3))


def _sms_spam(folder: Path) -> Rows:
    found = texts.sms_spam(folder)
    return _sparse(hash_words(found.texts), np.array([bool(names) for names in found.names]))


def _hiv(folder: Path) -> Rows:
    cells = _read_csv(folder / "moleculenet" / "HIV.csv.gz")[1:]
    return _sparse(hash_smiles(cells[:, 0].tolist()), cells[:, -1] == "1")


def _csr_parts(name: str, folder: Path) -> Rows:
    with np.load(folder / "multilabel" / f"{name}.npz") as z:
        values = np.ones(len(z["X_indices"])) if z["X_binary"] else z["X_data"].astype(np.float64)
        X = sparse.csr_matrix((values, z["X_indices"], z["X_indptr"]), shape=z["X_shape"])
        Y = sparse.csr_matrix((np.ones(len(z["Y_indices"]), np.int8), z["Y_indices"], z["Y_indptr"]), z["Y_shape"])
    return _multilabel(hash_columns(X), Y.toarray())


def _labelled(read: Callable[[Path], texts.Texts], folder: Path) -> Rows:
    found = read(folder)
    return _multilabel(hash_words(found.texts), texts.indicator(found.names))


def hash_words(lines: Iterable[str]) -> sparse.csr_matrix:
    """Counts of hashed lower-case words, rows of length 1."""
    return HashingVectorizer(n_features=HASHED_FEATURES, alternate_sign=False).transform(lines)


def hash_smiles(lines: Iterable[str]) -> sparse.csr_matrix:
    """Counts of hashed n-grams of 1 to 3 characters, case kept, rows of length 1."""
    vectorizer = HashingVectorizer(
        analyzer="char", ngram_range=(1, 3), lowercase=False, n_features=HASHED_FEATURES, alternate_sign=False
    )
    return vectorizer.transform(lines)


def hash_columns(X: sparse.csr_matrix) -> sparse.csr_matrix:
    """Columns of words, where they are more than text is hashed to: thrown together at random, rows of length 1."""
    if X.shape[1] <= HASHED_FEATURES:
        return X
    place = np.random.default_rng(DRAW_SEED).integers(HASHED_FEATURES, size=X.shape[1])
    thrown = sparse.csr_matrix((np.ones(len(place)), (np.arange(len(place)), place)), (len(place), HASHED_FEATURES))
    return normalize(X @ thrown)


def _table(cells: np.ndarray, positive: np.ndarray, categorical: Sequence[int] = ()) -> Rows:
    index = _draw(positive, MAX_ROWS)
    cells, positive = cells[index], positive[index]
    numeric = [column for column in range(cells.shape[1]) if column not in categorical]
    numbers = cells[:, numeric]
    if numbers.dtype.kind == "U":
        numbers = np.where(numbers == "?", "nan", numbers)
    return Rows(numbers.astype(np.float64), cells[:, list(categorical)].astype(str), _column(positive))


def _sparse(X: sparse.spmatrix, positive: np.ndarray) -> Rows:
    index = _draw(positive, MAX_ROWS)
    X, positive = sparse.csr_matrix(X)[index], positive[index]
    return Rows(X.astype(np.float64), np.empty((len(positive), 0), str), _column(positive))


def _multilabel(X: sparse.spmatrix, Y: np.ndarray) -> Rows:
    rng = np.random.default_rng(DRAW_SEED)
    index = np.sort(rng.permutation(len(Y))[:MAX_ROWS_MULTILABEL])
    X, Y = sparse.csr_matrix(X)[index].astype(np.float64), Y[index]
    counts = Y.sum(0, dtype=np.int64)
    common = np.flatnonzero((counts >= MIN_POSITIVES) & (counts <= len(Y) - MIN_POSITIVES))
    by_count = common[np.argsort(counts[common], kind="stable")]
    places = np.linspace(0, len(by_count) - 1, min(MAX_LABELS, len(by_count))).round().astype(int)
    # A matrix that is mostly filled, such as yeast's, is cheaper dense.
    numbers = X.toarray() if X.nnz > X.shape[0] * X.shape[1] / 2 else X
    return Rows(numbers, np.empty((len(Y), 0), str), Y[:, np.sort(by_count[places])].astype(np.int64))


def _draw(positive: np.ndarray, rows: int) -> np.ndarray:
    index = np.arange(len(positive))
    if len(index) > rows:
        index = train_test_split(index, train_size=rows, stratify=positive, random_state=DRAW_SEED)[0]
    return np.sort(index)


def _column(positive: np.ndarray) -> np.ndarray:
    return positive.astype(np.int64)[:, None]


def _read_svmlight(path: Path, features: int) -> tuple[sparse.csr_matrix, np.ndarray]:
    with gzip.open(path) as file:
        X, y = load_svmlight_file(file, n_features=features)
    return X, y == 1


def _read_csv(path: Path) -> np.ndarray:
    return _cells(texts.read_text(path).splitlines())


def _cells(lines: Iterable[str]) -> np.ndarray:
    return np.array([row for row in csv.reader(lines, skipinitialspace=True) if row])


RARE_ATTACKS = [
    *("buffer_overflow", "loadmodule", "perl", "rootkit"),  # U2R
    *("ftp_write", "guess_passwd", "imap", "multihop", "phf", "spy", "warezclient", "warezmaster"),  # R2L
]
ADBENCH = ("1_ALOI", "2_annthyroid", "5_campaign", "8_celeba", "10_cover", "11_donors", "12_fault", "27_PageBlocks")
ADBENCH += ("30_satellite", "32_shuttle", "33_skin", "41_Waveform")

BINARY: dict[str, Callable[[Path], Rows]] = {
    "mammography": _mammography,
    "adult": _adult,
    "a9a": _a9a,
    "w8a": _w8a,
    "ijcnn1": partial(_npz, "ijcnn1/ijcnn1.npz"),
    "htru2": _htru2,
    "diabetes130": _diabetes130,
    "bankruptcy_year1": partial(_polish_bankruptcy, 1),
    "bankruptcy_year5": partial(_polish_bankruptcy, 5),
    **{file.split("_")[1]: partial(_npz, f"adbench/{file}.npz") for file in ADBENCH},
    "kddcup99": _kddcup99,
    "sms_spam": _sms_spam,
    "hiv": _hiv,
}
MULTILABEL: dict[str, Callable[[Path], Rows]] = {
    **{
        name: partial(_csr_parts, name)
        for name in ("delicious", "corel5k", "bibtex", "rcv1sub1", "enron", "yeast", "tmc2007_500", "imdb_f")
    },
    "goemotions": partial(_labelled, texts.goemotions),
    "reuters21578": partial(_labelled, texts.reuters),
}
# Text and structures in thousands of sparse features; networks leave them out.
TEXT = ("sms_spam", "hiv", "rcv1sub1", "goemotions", "reuters21578")

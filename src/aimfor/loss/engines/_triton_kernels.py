"""The kernels of the Triton engine. Import them only where Triton is installed.

A program takes at most 32 labels and some rows. It reads every score, weight and mask of them once, and writes what it
found of each label once. The rows of a label may be spread over several programs, whose sums are added up afterwards.
The census reads the labels themselves, and leaves a bit of each for the pass: the labels of a row and program are one
word of 32 bits.
"""

import triton
import triton.language as tl

# Numbers of the surrogates, as the kernels are told.
HINGE, LOG, SMOOTH_HINGE, RAMP, SIGMOID = (tl.constexpr(number) for number in range(5))
_LEAK = tl.constexpr(0.01)
_BITS_PER_UNIT = tl.constexpr(1.4426950408889634)  # 1 / log 2


@triton.jit
def _places(rows, num_labels, first, BLOCK_ROWS: tl.constexpr, BLOCK_LABELS: tl.constexpr):
    """Rows and labels of a tile, and which of its entries there are."""
    row = first + tl.arange(0, BLOCK_ROWS).to(tl.int64)
    label = tl.program_id(0) * BLOCK_LABELS + tl.arange(0, BLOCK_LABELS)
    return row, label, (row < rows)[:, None] & (label < num_labels)[None, :]


@triton.jit
def _scores_and_weights(batch, strides, row, label, inside, WEIGHTED: tl.constexpr, MASKED: tl.constexpr):
    """Scores and weights of a tile; a weight is 0 where there is no entry."""
    scores, weights, mask = batch
    score = tl.load(scores + row[:, None] * strides[0] + label[None, :] * strides[1], mask=inside, other=0.0)
    weight = inside.to(tl.float32)
    if WEIGHTED:
        given = tl.load(weights + row[:, None] * strides[2] + label[None, :] * strides[3], mask=inside, other=0.0)
        weight = given.to(tl.float32)
    if MASKED:
        known = tl.load(mask + row[:, None] * strides[4] + label[None, :] * strides[5], mask=inside, other=0)
        weight = tl.where(known != 0, weight, 0.0)
    return score.to(tl.float32), weight


@triton.jit
def _from_bits(bits, row, rows, BLOCK_LABELS: tl.constexpr):
    """Which labels of a tile are 1."""
    word = tl.load(bits + row * tl.num_programs(0) + tl.program_id(0), mask=row < rows, other=0)
    return ((word[:, None] >> tl.arange(0, BLOCK_LABELS)[None, :]) & 1) != 0


@triton.jit
# long: six sums of one pass, each of which is stored by a line of its own
def census_kernel(
    batch,
    strides,
    bits,
    labels,
    label_strides,
    found,
    rows,
    num_labels,
    largest_score,
    ROWS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_LABELS: tl.constexpr,
    SPARSE: tl.constexpr,
    WEIGHTED: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Weights of the classes, weighted sum, lowest and highest score, and entries that break a rule, of each label."""
    chunk = tl.program_id(1)
    negatives = tl.zeros([BLOCK_LABELS], tl.float32)
    positives = tl.zeros([BLOCK_LABELS], tl.float32)
    total = tl.zeros([BLOCK_LABELS], tl.float32)
    faults = tl.zeros([BLOCK_LABELS], tl.float32)
    low = tl.full([BLOCK_LABELS], float("inf"), tl.float32)
    high = tl.full([BLOCK_LABELS], float("-inf"), tl.float32)
    for start in range(0, ROWS, BLOCK_ROWS):
        row, label, inside = _places(rows, num_labels, chunk * ROWS + start, BLOCK_ROWS, BLOCK_LABELS)
        score, weight = _scores_and_weights(batch, strides, row, label, inside, WEIGHTED, MASKED)
        there = weight != 0
        good = tl.abs(score) <= largest_score
        if SPARSE:
            positive = _from_bits(bits, row, rows, BLOCK_LABELS)
        else:
            place = labels + row[:, None] * label_strides[0] + label[None, :] * label_strides[1]
            truth = tl.load(place, mask=inside, other=0)
            positive = truth == 1
            good = good & (positive | (truth == 0))
            lane = tl.arange(0, BLOCK_LABELS)[None, :]
            word = tl.sum(tl.where(positive, 1 << lane, 0), 1).to(tl.int32)
            tl.store(bits + row * tl.num_programs(0) + tl.program_id(0), word, mask=row < rows)
        faults += tl.sum((there & (good == 0)).to(tl.float32), 0)
        score = tl.where(there, score, 0.0)
        negatives += tl.sum(tl.where(positive, 0.0, weight), 0)
        positives += tl.sum(tl.where(positive, weight, 0.0), 0)
        total += tl.sum(weight * score, 0)
        low = tl.minimum(low, tl.min(tl.where(there, score, float("inf")), 0))
        high = tl.maximum(high, tl.max(tl.where(there, score, float("-inf")), 0))
    label = tl.program_id(0) * BLOCK_LABELS + tl.arange(0, BLOCK_LABELS)
    place, some = found + chunk.to(tl.int64) * 6 * num_labels + label, label < num_labels
    tl.store(place, negatives, mask=some)
    tl.store(place + num_labels, positives, mask=some)
    tl.store(place + 2 * num_labels, total, mask=some)
    tl.store(place + 3 * num_labels, low, mask=some)
    tl.store(place + 4 * num_labels, high, mask=some)
    tl.store(place + 5 * num_labels, faults, mask=some)


@triton.jit
def _soft_plus(value):
    """log(1 + exp(value)) that does not overflow."""
    return tl.maximum(value, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(value)))


@triton.jit
def _logistic(value):
    """1 / (1 + exp(-value)), of which no part overflows."""
    small = tl.exp(-tl.abs(value))
    return tl.where(value >= 0, 1.0, small) / (1.0 + small)


@triton.jit
def _curve(margin, SURROGATE: tl.constexpr):
    """Loss and slope of a surrogate; see `_surrogates`."""
    if SURROGATE == HINGE:
        loss, slope = tl.maximum(1.0 - margin, 0.0), tl.where(margin < 1.0, -1.0, 0.0)
    elif SURROGATE == LOG:
        loss, slope = _soft_plus(-margin) * _BITS_PER_UNIT, -_logistic(-margin) * _BITS_PER_UNIT
    elif SURROGATE == SMOOTH_HINGE:
        rest = 1.0 - tl.minimum(tl.maximum(margin, 0.0), 1.0)
        loss, slope = rest * rest - 2.0 * tl.minimum(margin, 0.0), -2.0 * rest
    elif SURROGATE == RAMP:
        loss = tl.minimum(tl.maximum(1.0 - margin, 0.0), 1.0) + _LEAK * tl.maximum(-margin, 0.0)
        slope = tl.where(margin <= 0.0, -_LEAK, tl.where(margin < 1.0, -1.0, 0.0))
    else:
        share = _logistic(-margin)
        loss = share + _LEAK * tl.maximum(-margin, 0.0)
        slope = tl.where(margin < 0.0, -_LEAK, 0.0) - share * (1.0 - share)
    return loss, slope


@triton.jit
# long: one pass over the rows with eight sums, which a function of its own would have to take and give back
def count_kernel(  # noqa: C901, PLR0915
    batch,
    strides,
    bits,
    tables,
    per_label,
    gradient,
    sums,
    extras,
    rows,
    num_labels,
    num_anchors,
    ROWS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_ANCHORS: tl.constexpr,
    BLOCK_LABELS: tl.constexpr,
    SURROGATE: tl.constexpr,
    TIGHT: tl.constexpr,
    MIXED: tl.constexpr,
    ERRORS: tl.constexpr,
    LOG_LOSS: tl.constexpr,
    NEGATIVE_LOG_LOSS: tl.constexpr,
    WEIGHTED: tl.constexpr,
    MASKED: tl.constexpr,
):
    """The gradient of every score, and the sums of each label and anchor; see `_reference.sums_and_gradient`.

    Of a surrogate that is `TIGHT`, labels with `warming` are still on the hinge where `MIXED`.
    """
    chunk = tl.program_id(1)
    label = tl.program_id(0) * BLOCK_LABELS + tl.arange(0, BLOCK_LABELS)
    anchor = tl.arange(0, BLOCK_ANCHORS)
    some = label < num_labels
    tabled = (anchor < num_anchors)[:, None] & some[None, :]
    at = anchor[:, None].to(tl.int64) * num_labels + label[None, :]
    threshold = tl.load(tables[0] + at, mask=tabled, other=0.0)
    positive_cost = tl.load(tables[1] + at, mask=tabled, other=0.0)
    negative_cost = tl.load(tables[2] + at, mask=tabled, other=0.0)
    mean = tl.load(per_label[0] + label, mask=some, other=0.0)
    if TIGHT:
        sharpness = tl.load(per_label[1] + label, mask=some, other=1.0)
        if MIXED:
            warming = tl.load(per_label[2] + label, mask=some, other=0.0)
    if LOG_LOSS:
        positive_log_cost = tl.load(per_label[3] + label, mask=some, other=0.0)
        if NEGATIVE_LOG_LOSS:
            negative_log_cost = tl.load(per_label[4] + label, mask=some, other=0.0)

    positive_loss = tl.zeros([BLOCK_ANCHORS, BLOCK_LABELS], tl.float32)
    negative_loss = tl.zeros([BLOCK_ANCHORS, BLOCK_LABELS], tl.float32)
    positive_slope = tl.zeros([BLOCK_ANCHORS, BLOCK_LABELS], tl.float32)
    negative_slope = tl.zeros([BLOCK_ANCHORS, BLOCK_LABELS], tl.float32)
    false_negatives = tl.zeros([BLOCK_ANCHORS, BLOCK_LABELS], tl.float32)
    false_positives = tl.zeros([BLOCK_ANCHORS, BLOCK_LABELS], tl.float32)
    squares = tl.zeros([BLOCK_LABELS], tl.float32)
    log_loss = tl.zeros([BLOCK_LABELS], tl.float32)
    for start in range(0, ROWS, BLOCK_ROWS):
        row, _, inside = _places(rows, num_labels, chunk * ROWS + start, BLOCK_ROWS, BLOCK_LABELS)
        score, weight = _scores_and_weights(batch, strides, row, label, inside, WEIGHTED, MASKED)
        score = tl.where(weight != 0, score, 0.0)
        distance = score - mean[None, :]
        squares += tl.sum(weight * distance * distance, 0)
        positive = _from_bits(bits, row, rows, BLOCK_LABELS)
        plus, minus = tl.where(positive, weight, 0.0), tl.where(positive, 0.0, weight)
        sign = tl.where(positive, 1.0, -1.0)
        margin = sign[:, None, :] * (score[:, None, :] - threshold[None, :, :])  # rows, anchors, labels
        plus_3, minus_3 = plus[:, None, :], minus[:, None, :]
        if ERRORS:
            false_negatives += tl.sum(tl.where(margin < 0, plus_3, 0.0), 0)
            false_positives += tl.sum(tl.where(margin <= 0, minus_3, 0.0), 0)
        if TIGHT:
            loss, slope = _curve(margin * sharpness[None, None, :], SURROGATE)
            slope = slope * sharpness[None, None, :]
            if MIXED:
                hinge_loss, hinge_slope = _curve(margin, HINGE)
                on_hinge = warming[None, None, :] != 0
                loss, slope = tl.where(on_hinge, hinge_loss, loss), tl.where(on_hinge, hinge_slope, slope)
        else:
            loss, slope = _curve(margin, SURROGATE)
        positive_loss += tl.sum(loss * plus_3, 0)
        negative_loss += tl.sum(loss * minus_3, 0)
        plus_slope, minus_slope = slope * plus_3, slope * minus_3
        positive_slope += tl.sum(plus_slope, 0)
        negative_slope += tl.sum(minus_slope, 0)
        change = tl.sum(plus_slope * positive_cost[None, :, :] - minus_slope * negative_cost[None, :, :], 1)
        if LOG_LOSS:
            change -= plus * _logistic(-score) * positive_log_cost[None, :]
            log_loss += tl.sum(plus * _soft_plus(-score), 0) * positive_log_cost
            if NEGATIVE_LOG_LOSS:
                change += minus * _logistic(score) * negative_log_cost[None, :]
                log_loss += tl.sum(minus * _soft_plus(score), 0) * negative_log_cost
        place = gradient + row[:, None] * num_labels + label[None, :]
        tl.store(place, change.to(gradient.dtype.element_ty), mask=inside)

    size = tl.cast(num_anchors, tl.int64) * num_labels
    place = sums + chunk * (6 if ERRORS else 4) * size + at
    tl.store(place, positive_loss, mask=tabled)
    tl.store(place + size, negative_loss, mask=tabled)
    tl.store(place + 2 * size, positive_slope, mask=tabled)
    tl.store(place + 3 * size, negative_slope, mask=tabled)
    if ERRORS:
        tl.store(place + 4 * size, false_negatives, mask=tabled)
        tl.store(place + 5 * size, false_positives, mask=tabled)
    place = extras + chunk.to(tl.int64) * (2 if LOG_LOSS else 1) * num_labels + label
    tl.store(place, squares, mask=some)
    if LOG_LOSS:
        tl.store(place + num_labels, log_loss, mask=some)

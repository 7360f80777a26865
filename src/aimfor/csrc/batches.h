// A batch as it comes, and tiles of it as the pass reads them.
#pragma once

#include <algorithm>
#include <vector>

#include "vectors.h"

extern "C" {

// A matrix may be a view: strides count elements, and are 0 along an axis on which it does not change.
struct Matrix {
    const void* data;
    int64_t row_stride;
    int64_t label_stride;
};

struct Batch {
    int64_t rows;
    int64_t labels;
    Matrix scores;
    Matrix label_values;     // dense labels
    Matrix weights;          // float32; data is null for 1
    Matrix mask;             // bool; data is null for all True
    const int64_t* starts;   // sparse labels: where the entries of a row start, [rows + 1]
    const int64_t* columns;  // and the labels that are 1
    int64_t positions;       // length of columns
    uint32_t* positive;      // [ceil(labels / 32), rows]: written by the census, a bit for each label that is 1
    float largest_score;
    float largest_weight;
    int32_t score_type;  // ScoreType
    int32_t label_type;  // LabelType
    int32_t threads;
};

// What is wrong with a batch, if anything.
struct Fault {
    int32_t kind;  // FaultKind
    double value;
};

}  // extern "C"

namespace aimfor {

enum ScoreType : int32_t { FLOAT32 = 0, BFLOAT16 = 1 };
enum LabelType : int32_t { SPARSE = 0, FLOAT_LABELS = 1, BYTE_LABELS = 2, INT32_LABELS = 3, INT64_LABELS = 4 };
enum FaultKind : int32_t { NONE = 0, BAD_SCORE = 1, BAD_LABEL = 2, BAD_WEIGHT = 3, BAD_INDEX = 4, REPEATED = 5 };

constexpr int TILE = 128;  // labels: so much of a row that it is worth going to where it lies
constexpr int ROWS = 128;  // rows whose sums may stay in float; a tile and its gradient fit the second-level cache
constexpr int WORD = 32;   // labels whose marks are one number

// The score of an entry that is not there: far on the right side of every threshold, so that no surrogate feels it.
constexpr float ABSENT = -1e37f;

inline float widen(uint16_t half) {
    uint32_t pattern = static_cast<uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &pattern, sizeof value);
    return value;
}

// To the nearest, ties to even, like torch.
inline uint16_t narrow(float value) {
    uint32_t pattern;
    std::memcpy(&pattern, &value, sizeof pattern);
    return static_cast<uint16_t>((pattern + 0x7FFF + ((pattern >> 16) & 1)) >> 16);
}

// Where a tile stands in the batch.
struct Place {
    int64_t first_row;
    int rows;
    int64_t first_label;
    int labels;
};

// From one LANES labels of a tile to the next: a cache line more than their rows need. A round 4096 bytes would put one
// row of all of them into one set of the cache, which does not hold so many.
constexpr int GROUP = ROWS * LANES + 16;

// One side of a tile. Its entries are laid out so that vectors are full and follow one another: LANES labels side by
// side where there are so many, else the rows of one label. What is missing up to a whole vector is absent.
struct alignas(64) Side {  // a vector across two cache lines costs twice
    float scores[GROUP * TILE / LANES];
    float weights[GROUP * TILE / LANES];
    float gradient[GROUP * TILE / LANES];
};

// Up to ROWS rows of up to TILE labels. Negatives stand at their rows, with absent entries where there is none;
// positives one after another, with signs turned.
struct Tile {
    Side negative, positive;
    int32_t positive_row[GROUP * TILE / LANES];
    int positives[TILE];             // of each label
    int positive_lines[TILE / LANES];  // most of them in LANES labels
    bool weighted;
    bool by_label;  // LANES labels side by side

    int at(int row, int label) const {
        return by_label ? label / LANES * GROUP + row * LANES + label % LANES : label * ROWS + row;
    }

    void move_to_positives(int row, int label) {
        const int index = positives[label]++, from = at(row, label), to = at(index, label);
        if (by_label && index == positive_lines[label / LANES]) {
            store(positive.scores + to - label % LANES, all(ABSENT));
            store(positive.weights + to - label % LANES, Floats{});
            ++positive_lines[label / LANES];
        }
        positive.scores[to] = -negative.scores[from];
        positive.weights[to] = negative.weights[from];
        positive_row[to] = row;
        negative.scores[from] = ABSENT;
        negative.weights[from] = 0;
    }
};

template <class Type>
const Type* at(const Matrix& matrix, int64_t row, int64_t label) {
    return static_cast<const Type*>(matrix.data) + row * matrix.row_stride + label * matrix.label_stride;
}

// Reads rows of TILE labels of a batch into arrays of floats.
class Reader {
  public:
    explicit Reader(const Batch& batch)
        : weighted(batch.weights.data != nullptr || batch.mask.data != nullptr), batch(batch) {}

    // The scores of a row: where they are, or, if they are not floats side by side or not a whole tile, in `room`.
    const float* scores(int64_t row, const Place& place, float* room) const {
        return batch.score_type == FLOAT32 ? scores<float>(row, place, room) : scores<uint16_t>(row, place, room);
    }

    float score(int64_t row, int64_t label) const {
        return batch.score_type == FLOAT32 ? *at<float>(batch.scores, row, label)
                                           : widen(*at<uint16_t>(batch.scores, row, label));
    }

    float weight(int64_t row, int64_t label) const {
        if (batch.mask.data && !*at<uint8_t>(batch.mask, row, label)) return 0.0f;
        return batch.weights.data ? *at<float>(batch.weights, row, label) : 1.0f;
    }

    // Weights, 0 where the entry is masked.
    void weights(int64_t row, const Place& place, float* to) const {
        const uint8_t* mask = at<uint8_t>(batch.mask, row, place.first_label);
        const float* weights = at<float>(batch.weights, row, place.first_label);
        const int64_t mask_stride = batch.mask.label_stride, stride = batch.weights.label_stride;
        for (int label = 0; label < place.labels; ++label) {
            const bool kept = !batch.mask.data || mask[label * mask_stride];
            to[label] = !kept ? 0.0f : batch.weights.data ? weights[label * stride] : 1.0f;
        }
    }

    // Which of up to WORD dense labels are not 0, as bits; those that are not 1 either are `odd`.
    uint32_t labels(int64_t row, int64_t first_label, int count, uint32_t& odd) const {
        switch (batch.label_type) {
            case FLOAT_LABELS: return labels<float>(row, first_label, count, odd);
            case BYTE_LABELS: return labels<uint8_t>(row, first_label, count, odd);
            case INT32_LABELS: return labels<int32_t>(row, first_label, count, odd);
            default: return labels<int64_t>(row, first_label, count, odd);
        }
    }

    double label_value(int64_t row, int64_t label) const {
        switch (batch.label_type) {
            case FLOAT_LABELS: return *at<float>(batch.label_values, row, label);
            case BYTE_LABELS: return *at<uint8_t>(batch.label_values, row, label);
            case INT32_LABELS: return *at<int32_t>(batch.label_values, row, label);
            default: return static_cast<double>(*at<int64_t>(batch.label_values, row, label));
        }
    }

    const bool weighted;

  private:
    const Batch& batch;

    static float as_float(float value) { return value; }
    static float as_float(uint16_t value) { return widen(value); }

    template <class Type>
    const float* scores(int64_t row, const Place& place, float* room) const {
        const Type* from = at<Type>(batch.scores, row, place.first_label);
        const int64_t stride = batch.scores.label_stride;
        if constexpr (sizeof(Type) == sizeof(float)) {
            if (stride == 1 && place.labels == TILE) return from;
        }
        for (int label = 0; label < place.labels; ++label) room[label] = as_float(from[label * stride]);
        return room;
    }

    template <class Type>
    uint32_t labels(int64_t row, int64_t first_label, int count, uint32_t& odd) const {
        const Type* from = at<Type>(batch.label_values, row, first_label);
        const int64_t stride = batch.label_values.label_stride;
        odd = 0;
        if (stride == 1) {
            if (count == WORD && none(from)) return 0;
        }
        uint32_t found = 0;
        int label = 0;
        if constexpr (sizeof(Type) == sizeof(float)) {  // float and int32 alike
            typedef Type Values __attribute__((vector_size(sizeof(Ints)), aligned(4), may_alias));
            for (; stride == 1 && label + LANES <= count; label += LANES) {
                const Values value = *reinterpret_cast<const Values*>(from + label);
                const Ints other = ~(value == Type(0));
                found |= bits(other) << label;
                odd |= bits(other & ~(value == Type(1))) << label;
            }
        }
        for (; label < count; ++label) {
            const Type value = from[label * stride];
            found |= static_cast<uint32_t>(!(value == 0)) << label;
            odd |= static_cast<uint32_t>(!(value == 0 || value == 1)) << label;
        }
        return found;
    }

    // Whether all WORD labels are 0, as most are where labels are many.
    template <class Type>
    static bool none(const Type* from) {
        const AnyInts* words = reinterpret_cast<const AnyInts*>(from);
        Ints together = words[0];
        for (size_t one = 1; one < WORD * sizeof(Type) / sizeof(Ints); ++one) together |= words[one];
        return !bits(together != 0);
    }
};

// Sparse labels as bits. They come from outside and may hold any numbers, so all are checked.
inline void mark_positions(const Batch& batch, Fault* fault) {
    std::fill_n(batch.positive, (batch.labels + WORD - 1) / WORD * batch.rows, 0u);
    for (int64_t row = 0; row < batch.rows; ++row) {
        const int64_t begin = batch.starts[row], end = batch.starts[row + 1];
        if (begin < 0 || end < begin || end > batch.positions) {
            *fault = {BAD_INDEX, static_cast<double>(end)};
            return;
        }
        for (int64_t position = begin; position < end; ++position) {
            const int64_t label = batch.columns[position];
            if (label < 0 || label >= batch.labels) {
                *fault = {BAD_INDEX, static_cast<double>(label)};
                return;
            }
            uint32_t& word = batch.positive[label / WORD * batch.rows + row];
            if (word >> label % WORD & 1) *fault = {REPEATED, 2};
            word |= 1u << label % WORD;
        }
    }
}

// The census of some labels: checks values, marks positives, and adds up weight, weight of positives and weighted
// scores. Row by row, as the batch lies in memory.
class Census {
  public:
    Census(const Batch& batch, int64_t first_label, int64_t labels)
        : sums(3 * labels, 0.0), batch(batch), reader(batch), first_label(first_label), labels(labels),
          part(3 * (labels + TILE)) {}

    std::vector<double> sums;  // [3, labels]
    Fault fault = {NONE, 0};

    // Up to ROWS rows, whose sums stay in float.
    void take(int64_t first_row, int rows) {
        std::fill(part.begin(), part.end(), 0.0f);
        const bool taken = labels == 1 && take_column(first_row, rows);
        for (int64_t row = first_row; row < first_row + rows && !taken; ++row) {
            if (labels < LANES) take_few(row);
            for (int64_t label = 0; labels >= LANES && label < labels; label += TILE) {
                const int count = static_cast<int>(std::min<int64_t>(TILE, labels - label));
                const Place place = {row, 1, first_label + label, count};
                float* to = part.data() + label;
                reader.weighted ? take<true>(place, to) : take<false>(place, to);
            }
        }
        for (int64_t label = 0; label < labels; ++label) {
            sums[label] += reader.weighted || labels < LANES ? part[label] : static_cast<float>(rows);
            sums[labels + label] += part[labels + TILE + label];
            sums[2 * labels + label] += part[2 * (labels + TILE) + label];
        }
    }

  private:
    const Batch& batch;
    const Reader reader;
    const int64_t first_label, labels;
    std::vector<float> part;  // [3, labels + TILE]

    // Rows of the one label of a batch in its most common form; false where that is not its form, or a value is bad.
    bool take_column(int64_t first_row, int rows) {
        if (reader.weighted || batch.score_type != FLOAT32 || batch.label_type != FLOAT_LABELS) return false;
        const float* scores = at<float>(batch.scores, first_row, 0);
        const float* values = at<float>(batch.label_values, first_row, 0);
        const int64_t stride = batch.scores.row_stride, values_stride = batch.label_values.row_stride;
        const float largest = batch.largest_score;
        uint32_t* mark = batch.positive + first_row;
        uint32_t positives = 0, bad = 0;
        float sum = 0;
        for (int row = 0; row < rows; ++row) {
            const float score = scores[row * stride], value = values[row * values_stride];
            const uint32_t positive = value == 1.0f;
            bad |= !(std::fabs(score) <= largest) | !(value == 0.0f || positive);
            mark[row] = positive;
            positives += positive;
            sum += score;
        }
        if (bad) return false;
        part[0] += static_cast<float>(rows);
        part[labels + TILE] += static_cast<float>(positives);
        part[2 * (labels + TILE)] += sum;
        return true;
    }

    // One row of a batch with few labels, entry by entry.
    void take_few(int64_t row) {
        const int count = static_cast<int>(labels);
        uint32_t& mark = batch.positive[row];
        uint32_t odd = 0, positive = batch.label_type == SPARSE ? mark : reader.labels(row, 0, count, odd), seen = 0;
        for (int label = 0; label < count; ++label) {
            const float weight = reader.weighted ? reader.weight(row, label) : 1.0f, largest = batch.largest_weight;
            if (weight == 0) continue;
            if (!(weight >= 1 / largest && weight <= largest)) found({BAD_WEIGHT, weight});
            const float score = reader.score(row, label);
            if (!(std::fabs(score) <= batch.largest_score)) found({BAD_SCORE, score});
            seen |= 1u << label;
            part[label] += weight;
            part[labels + TILE + label] += positive >> label & 1 ? weight : 0.0f;
            part[2 * (labels + TILE) + label] += weight * score;
        }
        if (odd & seen) found({BAD_LABEL, reader.label_value(row, __builtin_ctz(odd & seen))});
        mark = positive & seen;
    }

    // One row of a tile.
    template <bool WEIGHTED>
    void take(const Place& place, float* weight_sum) {
        float *positive_sum = weight_sum + labels + TILE, *score_sum = positive_sum + labels + TILE;
        alignas(32) float score[TILE] = {}, weight[TILE];
        const float* scores = reader.scores(place.first_row, place, score);
        if (WEIGHTED) {
            std::fill_n(weight, TILE, 0.0f);
            reader.weights(place.first_row, place, weight);
            for (int label = 0; label < place.labels; ++label) {
                const float one = weight[label], largest = batch.largest_weight;
                if (!(one == 0 || (one >= 1 / largest && one <= largest))) found({BAD_WEIGHT, one});
                score[label] = one == 0 ? 0.0f : scores[label];  // nothing that stands at an absent entry is looked at
            }
            scores = score;
        }
        const float largest = batch.largest_score;
        Ints bad = {};
        for (int label = 0; label < place.labels; label += LANES) {
            const Floats one = load(scores + label);
            bad |= ~(absolute(one) <= largest);
            store(score_sum + label, load(score_sum + label) + (WEIGHTED ? one * load(weight + label) : one));
            if (WEIGHTED) store(weight_sum + label, load(weight_sum + label) + load(weight + label));
        }
        for (int label = 0; bits(bad) && label < place.labels; ++label) {
            if (!(std::fabs(scores[label]) <= largest)) found({BAD_SCORE, scores[label]});
        }
        uint32_t* mark = batch.positive + place.first_label / WORD * batch.rows + place.first_row;
        for (int first = 0; first < place.labels; first += WORD, mark += batch.rows) {
            const int count = std::min(WORD, place.labels - first);
            const int64_t at = place.first_label + first;
            uint32_t odd = 0, positive = *mark;
            if (batch.label_type != SPARSE) positive = reader.labels(place.first_row, at, count, odd);
            for (int label = 0; WEIGHTED && label < count; ++label) {
                const uint32_t absent = static_cast<uint32_t>(weight[first + label] == 0) << label;
                positive &= ~absent;
                odd &= ~absent;
            }
            if (odd) found({BAD_LABEL, reader.label_value(place.first_row, at + __builtin_ctz(odd))});
            *mark = positive;
            for (uint32_t left = positive; left; left &= left - 1) {
                const int label = first + __builtin_ctz(left);
                positive_sum[label] += WEIGHTED ? weight[label] : 1.0f;
            }
        }
    }

    void found(Fault one) {
        if (!fault.kind) fault = one;
    }
};

// Loads a tile whose values have been checked and whose positives are marked.
inline void load_tile(const Batch& batch, const Reader& reader, const Place& place, Tile& tile) {
    const bool weighted = reader.weighted, by_label = batch.labels >= LANES;
    const int labels = place.labels;
    tile.weighted = weighted;
    tile.by_label = by_label;
    std::fill_n(tile.positives, TILE, 0);
    std::fill_n(tile.positive_lines, TILE / LANES, 0);
    const uint32_t* const marks = batch.positive + place.first_label / WORD * batch.rows + place.first_row;
    alignas(32) float score[TILE], weight[TILE];
    std::fill_n(score, TILE, ABSENT);  // beyond the labels there are
    std::fill_n(weight, TILE, 0.0f);
    for (int row = 0; row < place.rows; ++row) {
        const float* scores = reader.scores(place.first_row + row, place, score);
        // Rows lie pages apart, where the processor does not look ahead by itself: fetched for the next tile.
        for (int label = 0; scores != score && label < TILE; label += 16) __builtin_prefetch(scores + TILE + label);
        if (weighted) {
            reader.weights(place.first_row + row, place, weight);
            for (int label = 0; label < labels; ++label) score[label] = weight[label] == 0 ? ABSENT : scores[label];
            scores = score;
        }
        if (by_label) {
            float* to = tile.negative.scores + row * LANES;
            for (int label = 0; label < labels; label += LANES, to += GROUP) store(to, load(scores + label));
            to = tile.negative.weights + row * LANES;
            for (int label = 0; weighted && label < labels; label += LANES, to += GROUP) {
                store(to, load(weight + label));
            }
        } else {
            for (int label = 0; label < labels; ++label) {
                tile.negative.scores[label * ROWS + row] = scores[label];
                tile.negative.weights[label * ROWS + row] = weight[label];
            }
        }
        for (int first = 0; first < labels; first += WORD) {
            for (uint32_t left = marks[first / WORD * batch.rows + row]; left; left &= left - 1) {
                tile.move_to_positives(row, first + __builtin_ctz(left));
            }
        }
    }
    for (int label = 0; !by_label && label < labels; ++label) {
        auto pad = [&](Side& side, int from) {
            for (int row = from; row % LANES; ++row) {
                side.scores[label * ROWS + row] = ABSENT;
                side.weights[label * ROWS + row] = 0;
            }
        };
        pad(tile.negative, place.rows);
        pad(tile.positive, tile.positives[label]);
    }
}

}  // namespace aimfor

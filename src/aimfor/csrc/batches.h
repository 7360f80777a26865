// A batch as it comes, and tiles of it as the pass reads them.
#pragma once

#include <algorithm>

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
    uint32_t* positive;      // [tiles, rows]: written by the census, a bit for each label of a tile that is 1
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

constexpr int TILE = 32;   // labels: two cache lines of a row
constexpr int ROWS = 256;  // rows whose sums may stay in float

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

// Up to ROWS rows of up to TILE labels. Negatives stand in a matrix with absent entries where there is none; positives
// in lists, one per label, with signs turned. The matrix is laid out so that vectors are full: labels side by side
// where there are at least LANES of them, else rows.
struct Tile {
    float negative[ROWS * TILE];
    float negative_weight[ROWS * TILE];
    float gradient[ROWS * TILE];
    float positive[TILE][ROWS + LANES];
    float positive_weight[TILE][ROWS + LANES];
    float positive_gradient[TILE][ROWS + LANES];
    int32_t positive_row[TILE][ROWS + LANES];
    int positives[TILE];
    bool weighted;
    bool by_label;  // labels side by side

    int at(int row, int label) const { return by_label ? row * TILE + label : label * ROWS + row; }

    void move_to_positives(int row, int label) {
        int here = at(row, label), index = positives[label]++;
        positive[label][index] = -negative[here];
        positive_weight[label][index] = weighted ? negative_weight[here] : 1.0f;
        positive_row[label][index] = row;
        negative[here] = ABSENT;
        negative_weight[here] = 0;
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

    void scores(int64_t row, const Place& place, float* to) const {
        batch.score_type == FLOAT32 ? scores<float>(row, place, to) : scores<uint16_t>(row, place, to);
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

    // Which dense labels are not 0, as bits; those that are not 1 either are `odd`.
    uint32_t labels(int64_t row, const Place& place, uint32_t& odd) const {
        switch (batch.label_type) {
            case FLOAT_LABELS: return labels<float>(row, place, odd);
            case BYTE_LABELS: return labels<uint8_t>(row, place, odd);
            case INT32_LABELS: return labels<int32_t>(row, place, odd);
            default: return labels<int64_t>(row, place, odd);
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

    // The rows of a wide batch are pages apart, where the processor does not look ahead by itself: what the next tile
    // will read of this row is fetched while this tile is worked on.
    template <class Type>
    static void fetch_next_tile(const Type* from) {
        const char* next = reinterpret_cast<const char*>(from + TILE);
        for (size_t byte = 0; byte < TILE * sizeof(Type); byte += 64) __builtin_prefetch(next + byte);
    }

    template <class Type>
    void scores(int64_t row, const Place& place, float* to) const {
        const Type* from = at<Type>(batch.scores, row, place.first_label);
        const int64_t stride = batch.scores.label_stride;
        if (stride == 1) {
            fetch_next_tile(from);
            for (int label = 0; label < place.labels; ++label) to[label] = as_float(from[label]);
        } else {
            for (int label = 0; label < place.labels; ++label) to[label] = as_float(from[label * stride]);
        }
    }

    template <class Type>
    uint32_t labels(int64_t row, const Place& place, uint32_t& odd) const {
        const Type* from = at<Type>(batch.label_values, row, place.first_label);
        const int64_t stride = batch.label_values.label_stride;
        uint32_t found = 0;
        odd = 0;
        int label = 0;
        if (stride == 1) {
            fetch_next_tile(from);
            for (; label + LANES <= place.labels; label += LANES) {
                uint32_t odd_ones;
                found |= eight(from + label, odd_ones) << label;
                odd |= odd_ones << label;
            }
        }
        for (; label < place.labels; ++label) {
            const Type value = from[label * stride];
            found |= static_cast<uint32_t>(!(value == 0)) << label;
            odd |= static_cast<uint32_t>(!(value == 0 || value == 1)) << label;
        }
        return found;
    }

    static uint32_t eight(const float* from, uint32_t& odd) {
        const Floats value = load(from);
        const Ints found = ~(value == 0.0f);
        odd = bits(found & ~(value == 1.0f));
        return bits(found);
    }
    template <class Type>
    static uint32_t eight(const Type* from, uint32_t& odd) {
        Ints value;
        Type together = 0;
        for (int lane = 0; lane < LANES; ++lane) {
            value[lane] = from[lane] != 0 ? -1 : 0;
            together |= from[lane];
        }
        odd = 0;
        if (together & ~static_cast<Type>(1)) {
            for (int lane = 0; lane < LANES; ++lane) odd |= static_cast<uint32_t>((from[lane] & ~Type(1)) != 0) << lane;
        }
        return bits(value);
    }
};

// Sparse labels as bits. They come from outside and may hold any numbers, so all are checked.
inline void mark_positions(const Batch& batch, Fault* fault) {
    std::fill_n(batch.positive, (batch.labels + TILE - 1) / TILE * batch.rows, 0u);
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
            uint32_t& word = batch.positive[label / TILE * batch.rows + row];
            if (word >> label % TILE & 1) *fault = {REPEATED, 2};
            word |= 1u << label % TILE;
        }
    }
}

// Checks the values at a place, marks its positives, and adds it to the census: weight, weight of positives, weighted
// sum of scores, TILE floats each.
inline void take_census(const Batch& batch, const Reader& reader, const Place& place, float* census, Fault* fault) {
    alignas(32) float score[TILE] = {}, weight[TILE] = {};
    std::fill_n(weight, place.labels, 1.0f);
    uint32_t* marks = batch.positive + place.first_label / TILE * batch.rows;
    for (int64_t row = place.first_row; row < place.first_row + place.rows; ++row) {
        reader.scores(row, place, score);
        uint32_t odd = 0;
        uint32_t positive = batch.label_type == SPARSE ? marks[row] : reader.labels(row, place, odd);
        if (reader.weighted) {
            reader.weights(row, place, weight);
            for (int label = 0; label < place.labels; ++label) {
                const float one = weight[label];
                const bool valid = one == 0 || (one >= 1 / batch.largest_weight && one <= batch.largest_weight);
                if (!valid && !fault->kind) *fault = {BAD_WEIGHT, one};
                if (one != 0) continue;
                score[label] = 0;  // nothing that stands at an absent entry is looked at
                positive &= ~(1u << label);
                odd &= ~(1u << label);
            }
        }
        if (odd && !fault->kind) {
            *fault = {BAD_LABEL, reader.label_value(row, place.first_label + __builtin_ctz(odd))};
        }
        Ints bad = {};
        for (int label = 0; label < place.labels; label += LANES) {
            const Floats one = load(score + label), its_weight = load(weight + label);
            bad |= ~(absolute(one) <= batch.largest_score);
            store(census + label, load(census + label) + its_weight);
            store(census + 2 * TILE + label, load(census + 2 * TILE + label) + one * its_weight);
        }
        if (bits(bad) && !fault->kind) {
            for (float one : score) {
                if (!(std::fabs(one) <= batch.largest_score) && !fault->kind) *fault = {BAD_SCORE, one};
            }
        }
        marks[row] = positive;
        for (uint32_t left = positive; left; left &= left - 1) {
            census[TILE + __builtin_ctz(left)] += weight[__builtin_ctz(left)];
        }
    }
}

// Loads a tile whose values have been checked and whose positives are marked.
inline void load_tile(const Batch& batch, const Reader& reader, const Place& place, Tile& tile) {
    tile.weighted = reader.weighted;
    tile.by_label = batch.labels >= LANES;
    std::fill_n(tile.positives, TILE, 0);
    const uint32_t* marks = batch.positive + place.first_label / TILE * batch.rows + place.first_row;
    alignas(32) float score[TILE], weight[TILE];
    for (int row = 0; row < place.rows; ++row) {
        float* scores = tile.by_label ? tile.negative + row * TILE : score;
        float* weights = tile.by_label ? tile.negative_weight + row * TILE : weight;
        reader.scores(place.first_row + row, place, scores);
        if (tile.weighted) {
            reader.weights(place.first_row + row, place, weights);
            for (int label = 0; label < place.labels; ++label) {
                scores[label] = weights[label] == 0 ? ABSENT : scores[label];
            }
        }
        if (tile.by_label) {
            for (int label = place.labels; label % LANES; ++label) {
                scores[label] = ABSENT;
                weights[label] = 0;
            }
        } else {
            for (int label = 0; label < place.labels; ++label) {
                tile.negative[tile.at(row, label)] = scores[label];
                tile.negative_weight[tile.at(row, label)] = tile.weighted ? weights[label] : 1.0f;
            }
        }
        for (uint32_t left = marks[row]; left; left &= left - 1) tile.move_to_positives(row, __builtin_ctz(left));
    }
    for (int label = 0; label < place.labels; ++label) {
        for (int row = place.rows; !tile.by_label && row % LANES; ++row) {
            tile.negative[tile.at(row, label)] = ABSENT;
            tile.negative_weight[tile.at(row, label)] = 0;
        }
        for (int index = tile.positives[label]; index % LANES; ++index) {
            tile.positive[label][index] = ABSENT;
            tile.positive_weight[label][index] = 0;
        }
    }
}

}  // namespace aimfor

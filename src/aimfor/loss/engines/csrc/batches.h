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
    const float* stored;     // what is stored there, which must be 1; null where it is known to be
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
enum LabelType : int32_t {
    SPARSE = 0,
    FLOAT_LABELS = 1,
    BYTE_LABELS = 2,
    INT32_LABELS = 3,
    INT64_LABELS = 4,
    DOUBLE_LABELS = 5,
};
enum FaultKind : int32_t { NONE = 0, BAD_SCORE = 1, BAD_LABEL = 2, BAD_WEIGHT = 3, ODD_POSITIONS = 4, REPEATED = 5 };

constexpr int TILE = 128;  // labels: so much of a row that it is worth going to where it lies
constexpr int ROWS = 128;  // rows whose sums may stay in float; a tile and its gradient fit the second-level cache
constexpr int64_t ROWS_PER_TASK = 4096;  // of one thread: fixed, so that sums do not depend on the number of threads
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

// Rows of a tile to bring near bit by bit, between other work: all at once they would have to be waited for.
class Upcoming {
  public:
    void clear() { listed = fetched = 0; }

    // What there is no room for is read all the same, only later.
    void add(const void* from) {
        if (listed < MOST) rows[listed++] = static_cast<const char*>(from);
    }

    // The next one of `parts` equal parts. Inlined, because the compiler leaves out calls of a function that does nothing
    // but fetch.
    __attribute__((always_inline)) void fetch_part(int parts) {
        const int end = std::min(listed, fetched + (listed + parts - 1) / parts);
        for (; fetched < end; ++fetched) fetch(rows[fetched], TILE * sizeof(float));
    }

  private:
    static constexpr int MOST = 256;
    const char* rows[MOST];
    int listed = 0, fetched = 0;
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
// positives one after another, with signs turned. Between two tiles the positive side is absent everywhere.
struct Tile {
    Side negative, positive;
    struct Move {
        uint16_t from, to;  // a place among the negatives, and one among the positives
    } moves[ROWS * TILE];
    int moved;
    int positives[TILE];               // of each label
    int positive_lines[TILE / LANES];  // most of them in LANES labels
    bool weighted;
    bool by_label;  // LANES labels side by side

    Tile() {
        std::fill(std::begin(positive.scores), std::end(positive.scores), ABSENT);
        std::fill(std::begin(positive.weights), std::end(positive.weights), 0.0f);
    }

    int at(int row, int label) const {
        return by_label ? label / LANES * GROUP + row * LANES + label % LANES : label * ROWS + row;
    }

    void move_to_positives(int row, int label) {
        const int index = positives[label]++, from = at(row, label), to = at(index, label);
        int& lines = positive_lines[label / LANES];
        lines = std::max(lines, index + 1);
        moves[moved++] = {static_cast<uint16_t>(from), static_cast<uint16_t>(to)};
        positive.scores[to] = -negative.scores[from];
        negative.scores[from] = ABSENT;
        if (!weighted) return;
        positive.weights[to] = negative.weights[from];
        negative.weights[from] = 0;
    }

    // Takes the gradients of the positives to where these came from, and leaves their side absent.
    void move_gradients_back() {
        for (const Move* move = moves; move < moves + moved; ++move) {
            negative.gradient[move->from] = -positive.gradient[move->to];
            positive.scores[move->to] = ABSENT;
            if (weighted) positive.weights[move->to] = 0;
        }
    }
};
static_assert(GROUP * TILE / LANES <= 1 << 16, "places fit the numbers of a Move");

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

    // The scores of one label.
    void column(const Place& place, int64_t label, float* to) const {
        if (batch.score_type == FLOAT32) column<float>(place, label, to);
        else column<uint16_t>(place, label, to);
    }

    float weight(int64_t row, int64_t label) const {
        if (batch.mask.data && !*at<uint8_t>(batch.mask, row, label)) return 0.0f;
        return batch.weights.data ? *at<float>(batch.weights, row, label) : 1.0f;
    }

    // Weights of a row, 0 where the entry is masked: where they are, or in `room`.
    const float* weights(int64_t row, const Place& place, float* room) const {
        const int labels = place.labels;
        const float* from = batch.weights.data ? at<float>(batch.weights, row, place.first_label) : nullptr;
        const int64_t stride = batch.weights.label_stride;
        if (from && (stride != 1 || labels < TILE)) {
            if (stride == 0) std::fill_n(room, labels, *from);  // one for all labels of the row
            else for (int label = 0; label < labels; ++label) room[label] = from[label * stride];
            from = room;
        }
        if (!batch.mask.data) return from;
        const uint8_t* mask = at<uint8_t>(batch.mask, row, place.first_label);
        const int64_t mask_stride = batch.mask.label_stride;
        int label = 0;
        for (; mask_stride == 1 && label + LANES <= labels; label += LANES) {
            store(room + label, where(mask_of(mask + label), from ? load(from + label) : all(1.0f)));
        }
        for (; label < labels; ++label) room[label] = !mask[label * mask_stride] ? 0.0f : from ? from[label] : 1.0f;
        return room;
    }

    // Which dense labels of a row are not 0, as bits in words of WORD labels; those that are not 1 either are `odd`.
    void labels(int64_t row, const Place& place, uint32_t* found, uint32_t* odd) const {
        switch (batch.label_type) {
            case FLOAT_LABELS: return labels<float>(row, place, found, odd);
            case BYTE_LABELS: return labels<uint8_t>(row, place, found, odd);
            case INT32_LABELS: return labels<int32_t>(row, place, found, odd);
            case DOUBLE_LABELS: return labels<double>(row, place, found, odd);
            default: return labels<int64_t>(row, place, found, odd);
        }
    }

    double label_value(int64_t row, int64_t label) const {
        switch (batch.label_type) {
            case FLOAT_LABELS: return *at<float>(batch.label_values, row, label);
            case BYTE_LABELS: return *at<uint8_t>(batch.label_values, row, label);
            case INT32_LABELS: return *at<int32_t>(batch.label_values, row, label);
            case DOUBLE_LABELS: return *at<double>(batch.label_values, row, label);
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
    void column(const Place& place, int64_t label, float* to) const {
        const Type* from = at<Type>(batch.scores, place.first_row, label);
        const int64_t stride = batch.scores.row_stride;
        if (stride == 1) for (int row = 0; row < place.rows; ++row) to[row] = as_float(from[row]);
        else for (int row = 0; row < place.rows; ++row) to[row] = as_float(from[row * stride]);
    }

    template <class Type>
    void labels(int64_t row, const Place& place, uint32_t* found, uint32_t* odd) const {
        const int64_t stride = batch.label_values.label_stride;
        const Type* from = at<Type>(batch.label_values, row, place.first_label);
        for (int first = 0; first < place.labels; first += WORD, from += WORD * stride, ++found, ++odd) {
            const int count = std::min(WORD, place.labels - first);
            fetch(from + 8 * WORD, WORD);  // of the tile after the next
            *found = *odd = 0;
            if (stride == 1 && count == WORD && all_right(from, found)) continue;
            *found = 0;
            for (int label = 0; label < count; ++label) {
                const Type value = from[label * stride];
                *found |= static_cast<uint32_t>(!(value == 0)) << label;
                *odd |= static_cast<uint32_t>(!(value == 0 || value == 1)) << label;
            }
        }
    }

    // Whether WORD labels side by side are 0 or 1; found are the ones. May say no where reading one by one says yes.
    template <class Type>
    static bool all_right(const Type* from, uint32_t* found) {
        if constexpr (sizeof(Type) == sizeof(float)) {  // float and int32 alike; no branches, which would be guesses
            typedef Type Values __attribute__((vector_size(sizeof(Ints)), aligned(4), may_alias));
            Ints odd = {};
            for (int label = 0; label < WORD; label += LANES) {
                const Values value = *reinterpret_cast<const Values*>(from + label);
                const Ints one = value == Type(1);
                odd |= ~(one | (value == Type(0)));
                *found |= bits(one) << label;
            }
            return !bits(odd);
        } else if constexpr (sizeof(Type) == 1) {
            *found = equal_bytes(from, 1);
            return (*found | equal_bytes(from, 0)) == ~0u;
        } else {
            return none(from);
        }
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

// Loads a tile whose values have been checked and whose positives are marked.
class Loader {
  public:
    explicit Loader(const Batch& batch) : batch(batch), reader(batch) {}

    void operator()(const Place& place, Tile& tile) const {
        tile.weighted = batch.weights.data != nullptr;  // a mask alone leaves entries absent, the others weigh 1
        tile.by_label = batch.labels >= LANES;
        std::fill_n(tile.positives, TILE, 0);
        std::fill_n(tile.positive_lines, TILE / LANES, 0);
        tile.moved = 0;
        alignas(sizeof(Floats)) float score[TILE], weight[TILE];
        std::fill_n(score, TILE, ABSENT);  // beyond the labels there are
        std::fill_n(weight, TILE, 0.0f);
        const bool by_columns = !tile.by_label && !reader.weighted;  // a few labels of many rows
        for (int label = 0; by_columns && label < place.labels; ++label) {
            reader.column(place, label, tile.negative.scores + label * ROWS);
        }
        for (int row = 0; !by_columns && row < place.rows; ++row) {
            const float* scores = reader.scores(place.first_row + row, place, score);
            if (reader.weighted) {
                const float* weights = reader.weights(place.first_row + row, place, weight);
                put_row(row, place.labels, scores, tile, tile.negative.scores, weights);
                if (tile.weighted) put_row(row, place.labels, weights, tile, tile.negative.weights);
            } else {
                put_row(row, place.labels, scores, tile, tile.negative.scores);
            }
        }
        for (int first = 0; first < place.labels; first += WORD) {
            const uint32_t* marks = batch.positive + (place.first_label + first) / WORD * batch.rows + place.first_row;
            int marked[ROWS], count = 0;  // listed without a branch, which would be a guess in every row
            for (int row = 0; row < place.rows; ++row) {
                marked[count] = row;
                count += marks[row] != 0;
            }
            for (const int* row = marked; row < marked + count; ++row) {
                uint32_t left = marks[*row];
                do {
                    tile.move_to_positives(*row, first + __builtin_ctz(left));
                    left &= left - 1;
                } while (left);
            }
        }
        for (int label = 0; !tile.by_label && label < place.labels; ++label) {
            pad(tile.negative, label, place.rows);
        }
    }

  private:
    const Batch& batch;
    const Reader reader;

    static void put_row(int row, int labels, const float* from, const Tile& tile, float* to) {
        if (tile.by_label) {
            to += row * LANES;
            for (int label = 0; label < labels; label += LANES, to += GROUP) store(to, load(from + label));
        } else {
            for (int label = 0; label < labels; ++label) to[label * ROWS + row] = from[label];
        }
    }

    // Scores, absent where the weight is 0.
    static void put_row(int row, int labels, const float* from, const Tile& tile, float* to, const float* weights) {
        if (tile.by_label) {
            to += row * LANES;
            for (int label = 0; label < labels; label += LANES, to += GROUP) {
                store(to, load(weights + label) == 0.0f ? all(ABSENT) : load(from + label));
            }
        } else {
            for (int label = 0; label < labels; ++label) to[label * ROWS + row] = weights[label] == 0 ? ABSENT : from[label];
        }
    }

    // The rows of one label up to a whole vector.
    static void pad(Side& side, int label, int from) {
        for (int row = from; row % LANES; ++row) {
            side.scores[label * ROWS + row] = ABSENT;
            side.weights[label * ROWS + row] = 0;
        }
    }
};

}  // namespace aimfor

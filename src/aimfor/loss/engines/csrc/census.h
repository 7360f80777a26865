// The census of a batch: every value checked, its positives marked as bits, its labels counted.
//
// Of each label it gives the weight of negatives, the weight of positives and the weighted mean of the scores. The mean
// never leaves the range of the scores: of scores that are all the same it is that score and not one beside it, and the
// threshold that starts there has all of them on one side.
#pragma once

#include "batches.h"

namespace aimfor {

constexpr int CENSUS_LABELS = 16 * TILE;  // side by side: the processor looks ahead along a row
constexpr int CENSUS_ROWS = 4;            // at once: so many rows along which it does

// Sparse labels as bits, and how many positives each label has. They come from outside and may hold any numbers, so all
// are checked.
inline void mark_positions(const Batch& batch, float* positives, Fault* fault) {
    const Reader reader(batch);
    std::fill_n(batch.positive, (batch.labels + WORD - 1) / WORD * batch.rows, 0u);
    bool odd = batch.starts[0] != 0 || batch.starts[batch.rows] != batch.positions;
    for (int64_t row = 0; row < batch.rows && !odd; ++row) {
        const int64_t begin = batch.starts[row], end = batch.starts[row + 1];
        odd = begin < 0 || end < begin || end > batch.positions;
        for (int64_t position = begin; position < end && !odd; ++position) {
            const int64_t label = batch.columns[position];
            odd = label < 0 || label >= batch.labels || (batch.stored && batch.stored[position] != 1.0f);
            if (odd) break;
            uint32_t& word = batch.positive[label / WORD * batch.rows + row];
            if (word >> label % WORD & 1 && reader.weight(row, label) != 0) *fault = {REPEATED, 2};
            word |= 1u << label % WORD;
            positives[label] += 1;
        }
    }
    if (odd) *fault = {ODD_POSITIONS, 0};
}

// The census: checks values, marks positives, and adds up weighted scores and the weights of negatives and of positives,
// each by itself: what is left of the whole would be rounding where one of them is rare.
class Census {
  public:
    // Sums of the labels of a tile. Without weights the first is found at the end: the rows that are not positive.
    struct alignas(64) Part {
        float sums[3][TILE] = {};
        float low[TILE], high[TILE];  // of the scores

        Part() {
            std::fill_n(low, TILE, INFINITY);
            std::fill_n(high, TILE, -INFINITY);
        }
    };

    explicit Census(const Batch& batch) : batch(batch), reader(batch) {}

    Fault fault = {NONE, 0};

    bool weighted() const { return reader.weighted; }

    void take(const Place& place, Part& part) {
        const bool valid = batch.labels == 1 && most_common_form() ? take_column(place, part)
                           : batch.labels < LANES                  ? take_few(place, part)
                           : reader.weighted                       ? take_rows<true, true>(place, part)
                           : batch.label_type == SPARSE            ? take_rows<false, false>(place, part)
                                                                   : take_rows<false, true>(place, part);
        if (!valid) find_fault(place);
    }

  private:
    const Batch& batch;
    const Reader reader;

    bool most_common_form() const {
        return !reader.weighted && batch.score_type == FLOAT32 && batch.label_type == FLOAT_LABELS;
    }

    uint32_t* mark(int64_t row, int64_t label) const { return batch.positive + label / WORD * batch.rows + row; }

    bool valid_weight(float weight) const {
        return weight == 0 || (weight >= 1 / batch.largest_weight && weight <= batch.largest_weight);
    }

    // The one label of a batch in its most common form.
    bool take_column(const Place& place, Part& part) {
        const float* scores = at<float>(batch.scores, place.first_row, 0);
        const float* values = at<float>(batch.label_values, place.first_row, 0);
        const int64_t stride = batch.scores.row_stride, values_stride = batch.label_values.row_stride;
        const float largest = batch.largest_score;
        uint32_t* marks = mark(place.first_row, 0);
        uint32_t positives = 0, bad = 0;
        float sum = 0, low = part.low[0], high = part.high[0];
        int row = 0;
        if (stride == 1 && values_stride == 1 && place.rows >= LANES) {
            Floats sums = {}, lows = all(low), highs = all(high);
            Ints ones = {}, wrong = {};
            for (; row + LANES <= place.rows; row += LANES) {
                const Floats score = load(scores + row), value = load(values + row);
                const Ints one = value == 1.0f;
                wrong |= ~(absolute(score) <= largest) | ~(one | (value == 0.0f));
                lows = smaller(lows, score);
                highs = larger(highs, score);
                sums += score;
                ones -= one;  // a set mask is -1
                store(reinterpret_cast<int32_t*>(marks + row), one & 1);
            }
            bad = bits(wrong);
            sum = total(sums);
            for (int lane = 0; lane < LANES; ++lane) {
                positives += ones[lane];
                low = std::min(low, lows[lane]);
                high = std::max(high, highs[lane]);
            }
        }
        for (; row < place.rows; ++row) {
            const float score = scores[row * stride], value = values[row * values_stride];
            low = std::min(low, score);
            high = std::max(high, score);
            const uint32_t positive = value == 1.0f;
            bad |= !(std::fabs(score) <= largest) | !(value == 0.0f || positive);
            marks[row] = positive;
            positives += positive;
            sum += score;
        }
        part.sums[1][0] += static_cast<float>(positives);
        part.sums[2][0] += sum;
        part.low[0] = low;
        part.high[0] = high;
        return !bad;
    }

    // Fewer labels than a vector has lanes, entry by entry.
    bool take_few(const Place& place, Part& part) {
        bool valid = true;
        for (int64_t row = place.first_row; row < place.first_row + place.rows; ++row) {
            uint32_t odd = 0, positive = *mark(row, 0), present = 0;
            if (batch.label_type != SPARSE) reader.labels(row, place, &positive, &odd);
            for (int label = 0; label < place.labels; ++label) {
                const float weight = reader.weighted ? reader.weight(row, label) : 1.0f;
                if (weight == 0) continue;
                const float score = reader.score(row, label);
                valid = valid && valid_weight(weight) && std::fabs(score) <= batch.largest_score;
                present |= 1u << label;
                part.sums[positive >> label & 1][label] += weight;
                part.sums[2][label] += weight * score;
                part.low[label] = std::min(part.low[label], score);
                part.high[label] = std::max(part.high[label], score);
            }
            valid = valid && !(odd & present);
            *mark(row, 0) = positive & present;
        }
        return valid;
    }

    // Positions that weigh 1 were counted when they were marked; labels are then not looked at.
    template <bool WEIGHTED, bool COUNTING>
    bool take_rows(const Place& place, Part& part) {
        alignas(sizeof(Floats)) float score[CENSUS_ROWS][TILE], weight[CENSUS_ROWS][TILE];
        if (place.labels < TILE) {  // 0 beyond the labels there are
            std::fill_n(score[0], CENSUS_ROWS * TILE, 0.0f);
            std::fill_n(weight[0], CENSUS_ROWS * TILE, 0.0f);
        }
        const float heaviest = batch.largest_weight, lightest = 1 / heaviest;
        const float largest = batch.largest_score;
        Ints bad = {};
        uint32_t odd_labels = 0;
        for (int64_t first = place.first_row; first < place.first_row + place.rows; first += CENSUS_ROWS) {
            const int rows = static_cast<int>(std::min<int64_t>(CENSUS_ROWS, place.first_row + place.rows - first));
            const float *scores[CENSUS_ROWS], *weights[CENSUS_ROWS];
            uint32_t positive[CENSUS_ROWS][TILE / WORD];
            for (int row = 0; row < rows; ++row) {
                scores[row] = reader.scores(first + row, place, score[row]);
                fetch(scores[row] + 2 * TILE, TILE);
                weights[row] = WEIGHTED ? reader.weights(first + row, place, weight[row]) : weight[row];
                if (WEIGHTED) fetch(weights[row] + 2 * TILE, TILE);
                if (COUNTING) odd_labels |= mark_row<WEIGHTED>(first + row, place, weights[row], positive[row]);
            }
            for (int label = 0; label < place.labels; label += LANES) {
                Floats negative_sum = {}, positive_sum = {}, score_sum = {};
                Floats low = load(part.low + label), high = load(part.high + label);
                for (int row = 0; row < rows; ++row) {
                    Floats one = load(scores[row] + label);
                    const Floats heavy = WEIGHTED ? load(weights[row] + label) : all(1.0f);
                    if (WEIGHTED) {
                        const Ints present = ~(heavy == 0.0f);
                        bad |= present & ~((heavy >= lightest) & (heavy <= heaviest));
                        low = smaller(low, present ? one : low);
                        high = larger(high, present ? one : high);
                        one = where(present, one);  // nothing that stands at an absent entry is looked at
                    } else {
                        low = smaller(low, one);
                        high = larger(high, one);
                    }
                    score_sum += WEIGHTED ? heavy * one : one;
                    if (COUNTING) {
                        const Ints is_positive = mask_of(positive[row][label / WORD] >> label % WORD);
                        if (WEIGHTED) negative_sum += where(~is_positive, heavy);
                        positive_sum += where(is_positive, heavy);
                    }
                }
                // A comparison with nan is false, but the extremes may have passed it over; the sum keeps it.
                bad |= (low < -largest) | (high > largest) | ~(score_sum == score_sum);
                store(part.low + label, low);
                store(part.high + label, high);
                auto add = [&](float* sums, Floats more) { store(sums + label, load(sums + label) + more); };
                if (WEIGHTED) add(part.sums[0], negative_sum);
                if (COUNTING) add(part.sums[1], positive_sum);
                add(part.sums[2], score_sum);
            }
        }
        return !bits(bad) && !odd_labels;
    }

    // Marks the positives of a row; returns whether some label is neither 0 nor 1.
    template <bool WEIGHTED>
    uint32_t mark_row(int64_t row, const Place& place, const float* weight, uint32_t* positive) {
        uint32_t odd[TILE / WORD] = {}, any_odd = 0;
        if (batch.label_type != SPARSE) reader.labels(row, place, positive, odd);
        for (int first = 0, word = 0; first < place.labels; first += WORD, ++word) {
            uint32_t& marks = *mark(row, place.first_label + first);
            if (batch.label_type == SPARSE) positive[word] = marks;
            if (WEIGHTED && positive[word]) {
                uint32_t present = 0;
                for (int label = 0; label < WORD; label += LANES) {
                    present |= bits(~(load(weight + first + label) == 0.0f)) << label;
                }
                positive[word] &= present;
                odd[word] &= present;
            }
            any_odd |= odd[word];
            marks = positive[word];
        }
        return any_odd;
    }

    // The first value that is not valid.
    void find_fault(const Place& place) {
        for (int64_t row = place.first_row; row < place.first_row + place.rows; ++row) {
            for (int64_t label = place.first_label; label < place.first_label + place.labels && !fault.kind; ++label) {
                const float weight = reader.weight(row, label), score = reader.score(row, label);
                const double value = batch.label_type == SPARSE ? 0.0 : reader.label_value(row, label);
                if (weight == 0) continue;
                if (!valid_weight(weight)) fault = {BAD_WEIGHT, weight};
                else if (!(std::fabs(score) <= batch.largest_score)) fault = {BAD_SCORE, score};
                else if (!(value == 0 || value == 1)) fault = {BAD_LABEL, value};
            }
        }
    }
};


// The census of a batch, cut into tasks of `width` labels by ROWS_PER_TASK rows.
struct CensusTasks {
    const Batch& batch;
    const int64_t width;  // whole tiles, not more than there are
    const int64_t label_parts, row_parts;

    explicit CensusTasks(const Batch& batch)
        : batch(batch), width(std::min<int64_t>(CENSUS_LABELS, (batch.labels + TILE - 1) / TILE * TILE)),
          label_parts((batch.labels + width - 1) / width),
          row_parts((batch.rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK) {}

    int64_t count() const { return label_parts * row_parts; }

    // What one task gives, [NUMBERS, width]: three sums, and the smallest and the largest score.
    static constexpr int NUMBERS = 5, LOW = 3, HIGH = 4;

    // The sums of ROWS rows stay in float.
    Fault run(int64_t task, double* numbers) const {
        Census census(batch);
        std::fill_n(numbers, LOW * width, 0.0);
        std::fill_n(numbers + LOW * width, width, INFINITY);
        std::fill_n(numbers + HIGH * width, width, -INFINITY);
        const int64_t first_label = task % label_parts * width, first_row = task / label_parts * ROWS_PER_TASK;
        const int64_t last_label = std::min(batch.labels, first_label + width);
        const int64_t last_row = std::min(batch.rows, first_row + ROWS_PER_TASK);
        std::vector<Census::Part> parts((last_label - first_label + TILE - 1) / TILE);
        for (int64_t block = first_row; block < last_row; block += ROWS) {
            const int64_t end = std::min(last_row, block + ROWS);
            std::fill(parts.begin(), parts.end(), Census::Part{});
            const int64_t at_once = parts.size() == 1 ? ROWS : CENSUS_ROWS;
            for (int64_t row = block; row < end; row += at_once) {
                const int rows = static_cast<int>(std::min(at_once, end - row));
                for (int64_t label = first_label; label < last_label; label += TILE) {
                    const int labels = static_cast<int>(std::min<int64_t>(TILE, last_label - label));
                    census.take({row, rows, label, labels}, parts[(label - first_label) / TILE]);
                }
            }
            const int labels = static_cast<int>(std::min<int64_t>(TILE, last_label - first_label));
            for (Census::Part& part : parts) {
                for (int label = 0; !census.weighted() && label < labels; ++label) {
                    part.sums[0][label] = static_cast<float>(end - block) - part.sums[1][label];
                }
                double* to = numbers + (&part - parts.data()) * TILE;
                for (int which = 0; which < LOW; ++which) {
                    for (int label = 0; label < labels; ++label) to[which * width + label] += part.sums[which][label];
                }
                for (int label = 0; label < labels; ++label) {
                    double &low = to[LOW * width + label], &high = to[HIGH * width + label];
                    low = std::min<double>(low, part.low[label]);
                    high = std::max<double>(high, part.high[label]);
                }
            }
        }
        return census.fault;
    }

    // Adds what a task of other rows has found of the same labels.
    void add(double* whole, const double* part) const {
        for (int64_t entry = 0; entry < LOW * width; ++entry) whole[entry] += part[entry];
        for (int64_t entry = LOW * width; entry < HIGH * width; ++entry) whole[entry] = std::min(whole[entry], part[entry]);
        for (int64_t entry = HIGH * width; entry < NUMBERS * width; ++entry) {
            whole[entry] = std::max(whole[entry], part[entry]);
        }
    }

    // The census of some labels, [3, L], from the numbers of all their rows; `positives` are those of positions that all
    // weigh 1, which were counted when they were marked, else null.
    void finish(const double* whole, int64_t first, const float* positives, float* census) const {
        for (int64_t label = 0; label < std::min(width, batch.labels - first); ++label) {
            auto number = [&](int which) { return whole[which * width + label]; };
            const double positive = positives ? positives[first + label] : number(1);
            const double negative = positives ? static_cast<double>(batch.rows) - positive : number(0);
            const double weight = positive + negative;
            const double mean = weight > 0 ? std::max(std::min(number(2) / weight, number(HIGH)), number(LOW)) : 0.0;
            float* to = census + first + label;
            to[0] = static_cast<float>(negative);
            to[batch.labels] = static_cast<float>(positive);
            to[2 * batch.labels] = static_cast<float>(mean);
        }
    }
};

}  // namespace aimfor

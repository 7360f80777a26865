// Count: the sums of every label and anchor over some rows, and the gradient of the scores.
#pragma once

#include <vector>

#include "log_loss.h"

namespace aimfor {

constexpr int SUMS = 6;  // as Sums of _step.py: losses of positives and negatives, slopes, false negatives, false positives

constexpr int NO_SURROGATE = -1;  // of a label that does not take part: it costs nothing, and nobody looks at its sums

// Sums of LANES labels, or of one label over LANES parts of its rows, at one anchor.
struct VectorSum {
    LossAndSlope of_surrogate;
    Floats errors;
};

// What the pass has to know of TILE labels, and where their sums go. Anchors follow one another, TILE floats apart.
struct Columns {
    std::vector<float> thresholds, u_cost, v_cost;
    float sharpness[TILE], score_mean[TILE];
    float counts_for[TILE];  // batches for which this one's errors stand; 0 where they are not needed
    float log_cost[TILE];    // of log-loss
    float of_aim[TILE];      // part of the aim in the gradient
    int32_t surrogate[TILE];
    // [SUMS, K, TILE] and, after them, [TILE] squares of distances from the mean score and [TILE] log-loss
    std::vector<float> sums;

    void resize(int anchors) {
        for (auto* one : {&thresholds, &u_cost, &v_cost}) one->resize(anchors * TILE);
        sums.resize(sums_of_a_tile(anchors));
    }
    float* sum(int which, int anchor) { return sums.data() + which * thresholds.size() + anchor * TILE; }
    const float* sum(int which, int anchor) const { return const_cast<Columns*>(this)->sum(which, anchor); }
    static size_t sums_of_a_tile(int64_t anchors) { return (SUMS * anchors + 2) * TILE; }
    float* squares() { return sum(SUMS, 0); }
    float* log_loss() { return squares() + TILE; }

    // Of the first labels alone, up to a whole vector: most of a tile may not be there.
    void add_to(double* totals, int labels) const {
        for (size_t row = 0; row < sums.size(); row += TILE) {
            for (int label = 0; label < whole_vectors(labels); ++label) totals[row + label] += sums[row + label];
        }
    }
    static int whole_vectors(int labels) { return (labels + LANES - 1) / LANES * LANES; }
    const float* squares() const { return sum(SUMS, 0); }
    const float* log_loss() const { return squares() + TILE; }
};

// What there is beside the aim.
struct Blend {
    bool has_log_loss;
    bool positives_only;  // of log-loss, as in the cross-entropy of exclusive classes
};

// Kept from call to call by every thread: to get fresh memory costs more than a small batch.
struct Scratch {
    Tile tile;
    Columns columns;
    std::vector<Floats> thresholds, costs, factors, room;
    std::vector<VectorSum> sums;
    std::vector<double> totals;
    Upcoming upcoming;

    void resize(int anchors) {
        columns.resize(anchors);
        thresholds.resize(anchors + 1);
        costs.resize(anchors + 1);
        factors.resize(anchors + 1);
        room.resize(2 * ROWS);
        sums.resize(anchors + 1);
    }
};

// One strip at all anchors, pair by pair (an odd last one is run twice, at no cost); adds to the gradient.
template <class Curve, bool WEIGHTED, bool TIE_IS_WRONG, bool ERRORS>
void run(const Strip& strip, const Setting& setting, VectorSum* sums) {
    const Curve curve(strip, setting);
    const float *const scores = strip.scores, *const weights = strip.weights;  // known not to change with the gradient
    float* const gradients = strip.gradient;
    const int count = strip.count;
    for (int anchor = 0; anchor < setting.anchors; anchor += 2) {
        setting.upcoming.fetch_part((setting.anchors + 1) / 2);
        const Pair threshold = {setting.thresholds[anchor], setting.thresholds[anchor + 1]};
        Tally<WEIGHTED> first_wrong, second_wrong;
        auto both = curve.start(anchor);
        for (int block = 0; block < count; block += Curve::BLOCK) {
            const int end = std::min(block + Curve::BLOCK, count);
#pragma GCC unroll 4
            for (int index = block; index < end; ++index) {
                const Floats score = load(scores + index * LANES);
                const Floats weight = WEIGHTED ? load(weights + index * LANES) : Floats{};
                float* const gradient = gradients + index * LANES;
                store(gradient, both.take(index, score, weight, load(gradient)));
                if (!ERRORS) continue;
                first_wrong.add(TIE_IS_WRONG ? score >= threshold.first : score > threshold.first, weight);
                second_wrong.add(TIE_IS_WRONG ? score >= threshold.second : score > threshold.second, weight);
            }
            both.after_block(strip);
        }
        const auto [first, second] = both.sums();
        sums[anchor] = {first, first_wrong.value()};
        sums[anchor + 1] = {second, second_wrong.value()};
    }
}

template <template <Range, bool> class Rule, bool W, bool T, bool E>
void run_in_range(const Strip& strip, Setting setting, VectorSum* sums) {
    Floats low = setting.thresholds[0], high = low, top = all(ABSENT);
    for (int anchor = 1; anchor < setting.anchors; ++anchor) {
        low = smaller(low, setting.thresholds[anchor]);
        high = larger(high, setting.thresholds[anchor]);
    }
    for (int index = 0; index < strip.count; ++index) top = larger(top, load(strip.scores + index * LANES));
    setting.middle = 0.5f * low + 0.5f * high;
    if (bits(~(setting.sharpness * (high - low) <= 50.0f))) {
        run<Exponential<Rule, WIDE, W>, W, T, E>(strip, setting, sums);
    } else if (bits(~(setting.sharpness * (top - low) <= Rule<NEAR, W>::LARGEST_Z))) {
        run<Exponential<Rule, FAR, W>, W, T, E>(strip, setting, sums);
    } else {
        run<Exponential<Rule, NEAR, W>, W, T, E>(strip, setting, sums);
    }
}

template <bool W, bool T, bool E>
void run(int surrogate, const Strip& strip, const Setting& setting, VectorSum* sums) {
    switch (surrogate) {
        case HINGE: return run<Direct<Hinge, W>, W, T, E>(strip, setting, sums);
        case LOG: return run_in_range<Log, W, T, E>(strip, setting, sums);
        case SMOOTH_HINGE: return run<Direct<SmoothHinge, W>, W, T, E>(strip, setting, sums);
        case RAMP: return run<Direct<Ramp, W>, W, T, E>(strip, setting, sums);
        default: return run_in_range<Sigmoid, W, T, E>(strip, setting, sums);
    }
}

// The pass over one tile.
class Pass {
  public:
    Pass(Scratch& scratch, int labels, int anchors, float leak, Blend blend)
        : scratch(scratch), tile(scratch.tile), columns(scratch.columns), labels(labels), anchors(anchors), leak(leak),
          blend(blend) {}

    // Before each LANES labels (or each one label) calls `list_ahead` with the first of them, for what to fetch meanwhile.
    template <class Callback>
    void operator()(int rows, const Callback& list_ahead) {
        for (int label = 0; label < labels; label += tile.by_label ? LANES : 1) {
            const int lines = (rows + LANES - 1) / LANES, positive_lines = (tile.positives[label] + LANES - 1) / LANES;
            scratch.upcoming.clear();
            list_ahead(label, scratch.upcoming);
            count<true>(label, tile.by_label ? rows : lines);
            count<false>(label, tile.by_label ? tile.positive_lines[label / LANES] : positive_lines);
        }
        tile.move_gradients_back();
    }

  private:
    Scratch& scratch;
    Tile& tile;
    Columns& columns;
    const int labels, anchors;
    const float leak;
    const Blend blend;

    // One side of LANES labels or, where there are fewer, of one. For positives thresholds turn round with the scores.
    template <bool NEGATIVES>
    void count(int label, int lines) {
        constexpr int LOSS = NEGATIVES ? 1 : 0, SLOPE = NEGATIVES ? 3 : 2, WRONG = NEGATIVES ? 5 : 4;
        Side& side = NEGATIVES ? tile.negative : tile.positive;
        const int here = tile.at(0, label);
        const Strip strip = {side.scores + here, side.weights + here, side.gradient + here, lines};
        const float sign = NEGATIVES ? 1.0f : -1.0f;
        const Floats sharpness = lanes(columns.sharpness, label);
        for (int anchor = 0; anchor <= anchors; ++anchor) {
            scratch.thresholds[anchor]
                = sign * lanes(columns.thresholds.data() + std::min(anchor, anchors - 1) * TILE, label);
        }
        const Ints rungs = tile.by_label ? load(columns.surrogate + label) : same(columns.surrogate[label]);
        const bool errors = bits(lanes(columns.counts_for, label) > 0.0f);
        for (int index = 0; index < lines; ++index) store(strip.gradient + index * LANES, Floats{});
        bool add = false;  // to the sums of a rung before
        for (int rung = HINGE; rung <= LAST_SURROGATE && lines; ++rung) {
            const Ints on_it = rungs == rung;
            if (!bits(on_it)) continue;
            const std::vector<float>& costs = NEGATIVES ? columns.v_cost : columns.u_cost;
            const Floats of_aim = lanes(columns.of_aim, label);
            for (int anchor = 0; anchor < anchors; ++anchor) {
                scratch.costs[anchor] = where(on_it, of_aim * lanes(costs.data() + anchor * TILE, label));
            }
            scratch.costs[anchors] = Floats{};
            const Setting setting = {scratch.thresholds.data(), scratch.costs.data(), scratch.factors.data(),
                                     scratch.room.data(), anchors, scratch.upcoming, Floats{}, sharpness, all(leak)};
            const auto run_it = tile.weighted ? (errors ? run<true, NEGATIVES, true> : run<true, NEGATIVES, false>)
                                              : (errors ? run<false, NEGATIVES, true> : run<false, NEGATIVES, false>);
            run_it(rung, strip, setting, scratch.sums.data());
            for (int anchor = 0; anchor < anchors; ++anchor) {
                auto [found, wrong] = scratch.sums[anchor];
                if (rung == LOG && !tile.weighted) found.loss += BITS * log_of_one_plus(found.less_one);
                put(columns.sum(LOSS, anchor), label, where(on_it, found.loss), add);
                put(columns.sum(SLOPE, anchor), label, where(on_it, -found.slope), add);  // in the margin, which is -z
                if (errors) put(columns.sum(WRONG, anchor), label, where(on_it, wrong), add);
            }
            add = true;
        }
        for (int anchor = 0; !add && anchor < anchors; ++anchor) {
            for (int which : {LOSS, SLOPE, WRONG}) put(columns.sum(which, anchor), label, Floats{}, false);
        }
        const Floats squares = squares_around(strip, sign * lanes(columns.score_mean, label));
        put(columns.squares(), label, squares, !NEGATIVES);
        if (!blend.has_log_loss || (NEGATIVES && blend.positives_only)) return;
        const Floats cost = lanes(columns.log_cost, label);
        const Floats loss = tile.weighted ? log_loss<true>(strip, cost) : log_loss<false>(strip, cost);
        put(columns.log_loss(), label, loss, !NEGATIVES && !blend.positives_only);
    }

    // What belongs to the lanes of a strip: that of LANES labels, or LANES times that of one.
    Floats lanes(const float* of_labels, int label) const {
        return tile.by_label ? load(of_labels + label) : all(of_labels[label]);
    }

    // Puts down a sum of the lanes, or adds to it.
    void put(float* sum, int label, Floats value, bool add) const {
        if (tile.by_label) store(sum + label, add ? load(sum + label) + value : value);
        else sum[label] = add ? sum[label] + total(value) : total(value);
    }

    // Weighted squares of the distances from the mean.
    Floats squares_around(const Strip& strip, Floats mean) const {
        return tile.weighted ? squares_around<true>(strip, mean) : squares_around<false>(strip, mean);
    }

    template <bool WEIGHTED>
    static Floats squares_around(const Strip& strip, Floats mean) {
        Floats sums[4] = {};  // because each addition waits for the one before
        auto take = [&](int index, Floats& sum) {
            const Floats score = load(strip.scores + index * LANES);
            const Floats distance = where(score > ABSENT, score - mean);
            sum += WEIGHTED ? load(strip.weights + index * LANES) * distance * distance : distance * distance;
        };
        int index = 0;
        for (; index + 4 <= strip.count; index += 4) {
            for (int place = 0; place < 4; ++place) take(index + place, sums[place]);
        }
        for (; index < strip.count; ++index) take(index, sums[0]);
        return (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
};

}  // namespace aimfor

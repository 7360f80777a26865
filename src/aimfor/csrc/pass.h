// Count: the sums of every label and anchor over some rows, and the gradient of the scores.
#pragma once

#include <vector>

#include "surrogates.h"

namespace aimfor {

constexpr int SUMS = 6;  // as bounds.Sums: losses of positives and negatives, slopes, false negatives, false positives

// Sums of LANES labels, or of one label over LANES parts of its rows, at one anchor.
struct VectorSum {
    Floats loss, slope, errors;
};

// What the pass has to know of TILE labels, and where their sums go. Anchors follow one another, TILE floats apart.
struct Columns {
    std::vector<float> thresholds, u_cost, v_cost;
    float sharpness[TILE], score_mean[TILE];
    int surrogate[TILE];
    std::vector<double> sums;  // [SUMS, K, TILE]
    double squares[TILE];

    void resize(int anchors) {
        for (auto* one : {&thresholds, &u_cost, &v_cost}) one->resize(anchors * TILE);
        sums.resize(SUMS * anchors * TILE);
    }
};

// Kept from call to call by every thread: to get fresh memory costs more than a small batch.
struct Scratch {
    Tile tile;
    Columns columns;
    std::vector<Floats> thresholds, costs;
    std::vector<VectorSum> sums;

    void resize(int anchors) {
        columns.resize(anchors);
        thresholds.resize(anchors + 1);
        costs.resize(anchors + 1);
        sums.resize(anchors + 1);
    }
};

// One strip at all anchors, pair by pair (an odd last one is run twice, at no cost). The gradient starts at 0, or is
// added to where another rung of the ladder has been.
template <class Curve, bool WEIGHTED, bool TIE_IS_WRONG>
void run(
    const Strip& strip, const Floats* thresholds, const Floats* costs, int anchors, Floats sharpness, Floats leak,
    bool first_rung, VectorSum* sums
) {
    Curve curve(strip, thresholds, anchors, sharpness, leak);
    for (int anchor = 0; anchor < anchors; anchor += 2) {
        const Pair threshold = {thresholds[anchor], thresholds[anchor + 1]};
        const Pair cost = {costs[anchor] * sharpness, costs[anchor + 1] * sharpness};
        Pair slopes = {};
        Ints wrong_first = {}, wrong_second = {};
        Pair wrong_weight = {};
        curve.start(anchor);
        for (int index = 0; index < strip.count; ++index) {
            const Floats score = load(strip.scores + index * strip.stride);
            const Floats weight = WEIGHTED ? load(strip.weights + index * strip.stride) : Floats{};
            const Pair z = {score - threshold.first, score - threshold.second};
            const Pair scaled = Curve::SHARP ? Pair{z.first * sharpness, z.second * sharpness} : z;
            Pair slope = curve.slopes(index, scaled, weight);
            if (WEIGHTED) slope = {slope.first * weight, slope.second * weight};
            slopes.first += slope.first;
            slopes.second += slope.second;
            float* gradient = strip.gradient + index * strip.stride;
            const Floats before = anchor || !first_rung ? load(gradient) : Floats{};
            store(gradient, before + cost.first * slope.first + cost.second * slope.second);
            const Ints first = TIE_IS_WRONG ? z.first >= 0.0f : z.first > 0.0f;
            const Ints second = TIE_IS_WRONG ? z.second >= 0.0f : z.second > 0.0f;
            if (WEIGHTED) {
                wrong_weight.first += where(first, weight);
                wrong_weight.second += where(second, weight);
            } else {
                wrong_first -= first;  // a set mask is -1
                wrong_second -= second;
            }
            if (index % 4 == 3) curve.after_four();
        }
        const Pair loss = curve.sums();
        sums[anchor] = {loss.first, slopes.first * sharpness, WEIGHTED ? wrong_weight.first : as_floats(wrong_first)};
        sums[anchor + 1] = {
            loss.second, slopes.second * sharpness, WEIGHTED ? wrong_weight.second : as_floats(wrong_second)};
    }
}

template <bool WEIGHTED, bool TIE_IS_WRONG, class... Arguments>
void run(int surrogate, const Arguments&... arguments) {
    const bool W = WEIGHTED, T = TIE_IS_WRONG;
    switch (surrogate) {
        case HINGE: return run<Direct<Hinge, W>, W, T>(arguments...);
        case LOG: return run<LogStrip<W>, W, T>(arguments...);
        case SMOOTH_HINGE: return run<Direct<SmoothHinge, W>, W, T>(arguments...);
        case RAMP: return run<Direct<Ramp, W>, W, T>(arguments...);
        default: return run<SigmoidStrip<W>, W, T>(arguments...);
    }
}

template <bool TIE_IS_WRONG, class... Arguments>
void run(bool weighted, const Arguments&... arguments) {
    weighted ? run<true, TIE_IS_WRONG>(arguments...) : run<false, TIE_IS_WRONG>(arguments...);
}

// The pass over one tile.
class Pass {
  public:
    Pass(Scratch& scratch, int labels, int anchors, float leak)
        : scratch(scratch), tile(scratch.tile), columns(scratch.columns), labels(labels), anchors(anchors), leak(leak) {}

    void operator()(int rows) {
        if (tile.by_label) {
            for (int label = 0; label < labels; label += LANES) negatives_of_group(label, rows);
        } else {
            for (int label = 0; label < labels; ++label) negatives_of(label, rows);
        }
        for (int label = 0; label < labels; ++label) {
            const int count = tile.positives[label];
            if (count == 0) continue;
            // Few positives leave the lanes of a strip empty; then anchors stand side by side instead.
            count < 2 * LANES ? few_positives_of(label) : many_positives_of(label);
            for (int index = 0; index < count; ++index) {
                tile.gradient[tile.at(tile.positive_row[label][index], label)] = -tile.positive_gradient[label][index];
            }
            columns.squares[label] += total(squares_around(
                {tile.positive[label], tile.positive_weight[label], nullptr, (count + LANES - 1) / LANES, LANES},
                all(columns.score_mean[label]), -1.0f));
        }
    }

  private:
    Scratch& scratch;
    Tile& tile;
    Columns& columns;
    const int labels, anchors;
    const float leak;

    double* sum(int which, int anchor, int label) {
        return columns.sums.data() + (static_cast<int64_t>(which) * anchors + anchor) * TILE + label;
    }

    // LANES labels side by side; those on another rung of the ladder in a second run.
    void negatives_of_group(int label, int rows) {
        Ints rung;
        for (int lane = 0; lane < LANES; ++lane) rung[lane] = columns.surrogate[label + lane];
        const Strip strip = {tile.negative + label, tile.negative_weight + label, tile.gradient + label, rows, TILE};
        const Floats sharpness = load(columns.sharpness + label);
        for (int anchor = 0; anchor <= anchors; ++anchor) {
            scratch.thresholds[anchor] = load(columns.thresholds.data() + std::min(anchor, anchors - 1) * TILE + label);
        }
        const bool mixed = bits(~(rung == rung[0])) != 0;
        for (int surrogate = HINGE; surrogate <= SIGMOID; ++surrogate) {
            const Ints on_it = rung == surrogate;
            if (!bits(on_it)) continue;
            for (int anchor = 0; anchor < anchors; ++anchor) {
                scratch.costs[anchor] = where(on_it, load(columns.v_cost.data() + anchor * TILE + label));
            }
            scratch.costs[anchors] = Floats{};
            run<true>(
                tile.weighted, surrogate, strip, scratch.thresholds.data(), scratch.costs.data(), anchors, sharpness,
                all(leak), !mixed || surrogate == HINGE, scratch.sums.data());
            for (int anchor = 0; anchor < anchors; ++anchor) {
                const VectorSum& found = scratch.sums[anchor];
                double *loss = sum(1, anchor, label), *slope = sum(3, anchor, label), *errors = sum(5, anchor, label);
                const Floats a = where(on_it, found.loss), b = where(on_it, found.slope), c = where(on_it, found.errors);
                for (int lane = 0; lane < LANES; ++lane) {
                    loss[lane] += a[lane];
                    slope[lane] -= b[lane];  // in the margin, which is -z
                    errors[lane] += c[lane];
                }
            }
        }
        const Floats squares = squares_around(strip, load(columns.score_mean + label), 1.0f);
        for (int lane = 0; lane < LANES; ++lane) columns.squares[label + lane] += squares[lane];
    }

    void negatives_of(int label, int rows) {
        const int here = tile.at(0, label);
        const Strip strip = {
            tile.negative + here, tile.negative_weight + here, tile.gradient + here, (rows + LANES - 1) / LANES, LANES};
        run_column<true>(label, strip, 1.0f, columns.v_cost);
        columns.squares[label] += total(squares_around(strip, all(columns.score_mean[label]), 1.0f));
    }

    void many_positives_of(int label) {
        const int count = (tile.positives[label] + LANES - 1) / LANES;
        const Strip strip = {
            tile.positive[label], tile.positive_weight[label], tile.positive_gradient[label], count, LANES};
        run_column<false>(label, strip, -1.0f, columns.u_cost);
    }

    // One label, LANES rows side by side; positives (sign -1) with scores and thresholds turned round.
    template <bool NEGATIVES>
    void run_column(int label, const Strip& strip, float sign, const std::vector<float>& costs) {
        for (int anchor = 0; anchor <= anchors; ++anchor) {
            const int from = std::min(anchor, anchors - 1) * TILE + label;
            scratch.thresholds[anchor] = all(sign * columns.thresholds[from]);
            scratch.costs[anchor] = anchor < anchors ? all(costs[from]) : Floats{};
        }
        run<NEGATIVES>(
            tile.weighted, columns.surrogate[label], strip, scratch.thresholds.data(), scratch.costs.data(), anchors,
            all(columns.sharpness[label]), all(leak), true, scratch.sums.data());
        for (int anchor = 0; anchor < anchors; ++anchor) {
            const VectorSum& found = scratch.sums[anchor];
            *sum(NEGATIVES ? 1 : 0, anchor, label) += total(found.loss);
            *sum(NEGATIVES ? 3 : 2, anchor, label) -= total(found.slope);
            *sum(NEGATIVES ? 5 : 4, anchor, label) += total(found.errors);
        }
    }

    void few_positives_of(int label) {
        switch (columns.surrogate[label]) {
            case HINGE: return few_positives<Hinge>(label);
            case LOG: return few_positives<Log>(label);
            case SMOOTH_HINGE: return few_positives<SmoothHinge>(label);
            case RAMP: return few_positives<Ramp>(label);
            default: return few_positives<Sigmoid>(label);
        }
    }

    template <class Rule>
    void few_positives(int label) {
        const float sharpness = columns.sharpness[label];
        const int groups = (anchors + LANES - 1) / LANES;  // at most `anchors`, so the arrays of a strip hold them
        for (int group = 0; group < groups; ++group) {
            Floats threshold = {}, cost = {};
            for (int lane = 0, anchor = group * LANES; lane < LANES && anchor < anchors; ++lane, ++anchor) {
                threshold[lane] = -columns.thresholds[anchor * TILE + label];
                cost[lane] = columns.u_cost[anchor * TILE + label] * sharpness;
            }
            scratch.thresholds[group] = threshold;
            scratch.costs[group] = cost;
            scratch.sums[group] = VectorSum{};
        }
        for (int index = 0; index < tile.positives[label]; ++index) {
            const float score = tile.positive[label][index], weight = tile.positive_weight[label][index];
            Floats gradient = {};
            for (int group = 0; group < groups; ++group) {
                const Floats z = score - scratch.thresholds[group];
                VectorSum& found = scratch.sums[group];
                Floats slope;
                found.loss += weight * Rule::loss(z * sharpness, all(leak), slope);
                found.slope += weight * slope;
                found.errors += where(z > 0.0f, all(weight));
                gradient += scratch.costs[group] * slope;
            }
            tile.positive_gradient[label][index] = weight * total(gradient);
        }
        for (int anchor = 0; anchor < anchors; ++anchor) {
            const VectorSum& found = scratch.sums[anchor / LANES];
            *sum(0, anchor, label) += found.loss[anchor % LANES];
            *sum(2, anchor, label) -= found.slope[anchor % LANES] * sharpness;
            *sum(4, anchor, label) += found.errors[anchor % LANES];
        }
    }

    // Weighted squares of the distances from the mean; `sign` turns the scores of positives back.
    Floats squares_around(const Strip& strip, Floats mean, float sign) const {
        Floats sum = {};
        for (int index = 0; index < strip.count; ++index) {
            const Floats score = load(strip.scores + index * strip.stride);
            const Floats distance = smaller(larger(sign * score - mean, all(-1e16f)), all(1e16f));
            const Floats square = where(score > ABSENT, distance * distance);
            sum += tile.weighted ? load(strip.weights + index * strip.stride) * square : square;
        }
        return sum;
    }
};

}  // namespace aimfor

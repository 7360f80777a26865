// Weigh: costs from the state before the pass, and one step of the state after it, as in losses.py and state.py.
#pragma once

#include "pass.h"

extern "C" {

// An entry of the aim's table; strides are 0 along an axis on which it does not change.
struct Entry {
    const float* data;
    int64_t anchor_stride;
    int64_t label_stride;
};

struct Table {
    Entry width, objective_u, objective_v, load_u, load_v, room, room_recall;
    Entry multiplier;  // data is null where the state's own is used
};

// The buffers of state.State: [K, L] where nothing else is said.
struct State {
    float* class_weight;  // [2, L]
    int64_t* steps;       // [L]
    float* thresholds;
    float* multipliers;
    float* rates;           // [4, K, L]
    float* positives;       // [L]
    float* exact_positives;  // [L]
    float* score_mean;      // [L]
    float* score_variance;  // [L]
    float* slope_square;
    float* violation_square;
    float* lowest_violation;
    float* fruitless_steps;
};

// Options of the loss and constants of state.py.
struct Rules {
    float dual_rate, threshold_rate, sharpness, leak;
    float forget, forget_slope, progress, max_multiplier, longest_count, smallest_size, smallest_deviation, rounding;
    float outlying, mean_rounding;
    int64_t warmup;
    int32_t surrogate;  // SurrogateKind
    int32_t tight;      // reached by a ladder from the hinge
    int32_t exact;      // 0-1 rates drive the multipliers
    int32_t learning;   // whether the state moves
    int32_t looking;    // for how many batches this one stands in the search for constraints that cannot be met; or 0
    int32_t count_every;  // batches between two that count errors of labels which do not need them in every one
    int32_t counting;     // for how many batches this one stands in the exact rates of such labels; or 0
};

}  // extern "C"

namespace aimfor {

struct Problem {
    const Batch& batch;
    const float* census;  // [3, L]
    int anchors;
    const Table& table;
    const State& state;
    const Rules& rules;
};

inline Floats moved(Floats from, Floats to, Floats share) { return from + share * (to - from); }

inline Floats chosen(Ints mask, Floats yes, Floats no) { return mask ? yes : no; }

// A counted prior, away from 0 and 1.
inline Floats inside(Floats prior) { return smaller(larger(prior, all(1e-7f)), all(1.0f - 1e-7f)); }

// State._reach
inline Floats reach(Floats variance, Floats mean, const Rules& rules) {
    const Floats deviation = root(variance);
    return chosen(deviation > rules.mean_rounding * absolute(mean), rules.outlying * deviation, all(INFINITY));
}

struct Rates {
    Floats u, v, p;
};

// The state and the table of LANES labels or, where the group is not FULL, of as many as there are left.
template <bool FULL>
class Group {
  public:
    Group(const Problem& problem, int64_t first) : problem(problem), first(first) {
        used = static_cast<int>(std::min<int64_t>(LANES, problem.batch.labels - first));
        const State& state = problem.state;
        const int64_t L = problem.batch.labels;
        const Floats positives = get(state.class_weight + first);
        const Floats negatives = get(state.class_weight + L + first);
        const Floats came = get(problem.census + first);
        active = (positives > 0.0f) & (negatives > 0.0f) & (came > 0.0f);
        const Floats prior = chosen(active, inside(positives / (positives + negatives)), all(0.5f));
        weight = chosen(active, came, all(1.0f));
        u_unit = where(active, 1.0f / (prior * weight));
        v_unit = where(active, 1.0f / ((1.0f - prior) * weight));
        positives_came = get(problem.census + L + first) * u_unit;
    }

    // Weights of u and v in the Lagrangian of each label at one anchor.
    void weigh(int anchor, Columns& columns, int label) {
        const Table& table = problem.table;
        const Floats width = entry(table.width, anchor), multiplier = this->multiplier(anchor);
        const Floats load_u = entry(table.load_u, anchor) + entry(table.room_recall, anchor);
        const Floats u = width * (entry(table.objective_u, anchor) + multiplier * load_u);
        const Floats v = width * (entry(table.objective_v, anchor) + multiplier * entry(table.load_v, anchor));
        store(columns.u_cost.data() + anchor * TILE + label, u);
        store(columns.v_cost.data() + anchor * TILE + label, v);
        store(columns.thresholds.data() + anchor * TILE + label, at(problem.state.thresholds, anchor));
        total_cost += u + v;
    }

    // Once all anchors are weighed: divides by their total, and by what turns sums into rates.
    void share_costs(Columns& columns, int label) {
        const Floats divisor = chosen(total_cost > 0.0f, total_cost, all(1.0f)) * static_cast<float>(problem.batch.labels);
        share = where(active, 1.0f / divisor);
        for (int anchor = 0; anchor < problem.anchors; ++anchor) {
            float *u = columns.u_cost.data() + anchor * TILE + label, *v = columns.v_cost.data() + anchor * TILE + label;
            store(u, load(u) * share * u_unit);
            store(v, load(v) * share * v_unit);
        }
        const State& state = problem.state;
        const Rules& rules = problem.rules;
        const Floats deviation = root(get(state.score_variance + first));
        for (int lane = 0; lane < LANES; ++lane) {
            const bool warming = rules.tight && state.steps[first + std::min(lane, used - 1)] < rules.warmup;
            const bool sharp = rules.tight && !warming;
            columns.surrogate[label + lane]
                = !active[lane] ? NO_SURROGATE : warming ? static_cast<int>(HINGE) : rules.surrogate;
            // State.counts_for
            exact_drives[lane] = rules.exact || warming ? -1 : 0;
            const bool always = exact_drives[lane] || state.steps[first + std::min(lane, used - 1)] < rules.count_every;
            const bool asked = rules.learning && active[lane];
            counts_for[lane] = !asked ? 0.0f : always ? 1.0f : static_cast<float>(rules.counting);
            columns.sharpness[label + lane]
                = sharp ? rules.sharpness / std::max(deviation[lane], rules.smallest_deviation) : 1.0f;
        }
        store(columns.score_mean + label, get(state.score_mean + first));
        counts = bits(counts_for > 0.0f) != 0;
        store(columns.counts_for + label, counts_for);
    }

    // What the step of a label has for all anchors.
    void start_learning(const Columns& columns, int label) {
        const State& state = problem.state;
        const Rules& rules = problem.rules;
        Floats steps = {};
        for (int lane = 0; lane < LANES; ++lane) {
            const int64_t done = state.steps[first + std::min(lane, used - 1)];
            steps[lane] = static_cast<float>(done + (active[lane] ? 1 : 0));
            if (rules.learning && lane < used) state.steps[first + lane] += active[lane] ? 1 : 0;
        }
        const Floats first_mean = 1.0f / larger(steps, all(1.0f));
        forget = where(active, larger(first_mean, all(rules.forget)));
        forget_slope = where(active, larger(first_mean, all(rules.forget_slope)));
        const Floats variance = load(columns.squares() + label) / weight;
        positives = moved(get(state.positives + first), positives_came, forget);
        exact_positives = moved(get(state.exact_positives + first), positives_came, forget * counts_for);
        const Floats before = get(state.score_variance + first);
        const Floats farthest = reach(before, get(state.score_mean + first), rules);
        const Floats spread = moved(before, smaller(variance, farthest * farthest), forget);
        if (rules.learning) {
            set(state.positives + first, positives);
            set(state.exact_positives + first, exact_positives);
            set(state.score_variance + first, spread);
        }
        deviation = root(spread);
    }

    // Adds the value at one anchor; where the loss is learning, one step of the state there, as in State.learn_.
    void learn(int anchor, const Columns& columns, int label) {
        const State& state = problem.state;
        const Rules& rules = problem.rules;
        const Table& table = problem.table;
        const int64_t KL = problem.anchors * problem.batch.labels;
        auto sum = [&](int which) { return load(columns.sum(which, anchor) + label); };
        const Rates surrogate = {sum(0) * u_unit, sum(1) * v_unit, positives_came};
        const Rates exact = {sum(4) * u_unit, sum(5) * v_unit, positives_came};
        const Floats load_u = entry(table.load_u, anchor), load_v = entry(table.load_v, anchor);
        const Floats room = entry(table.room, anchor), room_recall = entry(table.room_recall, anchor);
        auto load_at = [&](const Rates& rates) { return load_u * rates.u + load_v * rates.v; };
        auto room_at = [&](const Rates& rates) { return room + room_recall * (rates.p - rates.u); };
        auto violation_at = [&](const Rates& rates) { return load_at(rates) - room_at(rates); };

        const Floats multiplier = this->multiplier(anchor);
        const Floats objective
            = entry(table.objective_u, anchor) * surrogate.u + entry(table.objective_v, anchor) * surrogate.v;
        const Floats lagrangian = objective + multiplier * violation_at(surrogate);
        values += share * entry(table.width, anchor) * lagrangian;
        if (!rules.learning) return;

        auto running = [&](int which, Floats now, Floats share) {
            float* here = state.rates + which * KL + anchor * problem.batch.labels + first;
            fetch(here + TILE, LANES);
            const Floats rate = moved(get(here), now, share);
            set(here, rate);
            return rate;
        };
        const Floats surrogate_u = running(0, surrogate.u, forget), surrogate_v = running(1, surrogate.v, forget);
        Floats exact_u = {}, exact_v = {};  // where nothing is counted nobody looks at them
        if (counts) {
            exact_u = running(2, exact.u, forget * counts_for);
            exact_v = running(3, exact.v, forget * counts_for);
        }

        if (table.multiplier.data) {
            put(state.multipliers, anchor, chosen(active, multiplier, at(state.multipliers, anchor)));
        } else {
            const Rates driving
                = {chosen(exact_drives, exact.u, surrogate.u), chosen(exact_drives, exact.v, surrogate.v),
                   positives_came};
            const Rates usual
                = {chosen(exact_drives, exact_u, surrogate_u), chosen(exact_drives, exact_v, surrogate_v),
                   positives};
            const Floats violation = violation_at(usual);
            const Floats size = larger(load_at(usual), absolute(room_at(usual)));
            const Floats relative = chosen(
                size > rules.smallest_size, violation_at(driving) / larger(size, all(rules.smallest_size)),
                all(-1.0f));
            const Floats square = moved(at(state.violation_square, anchor), relative * relative, forget);
            put(state.violation_square, anchor, square);
            const Floats step = relative / larger(root(square), all(1.0f));
            const Floats stepped = smaller(
                larger(multiplier + rules.dual_rate * step, Floats{}), all(rules.max_multiplier));
            put(state.multipliers, anchor, chosen(active, stepped, multiplier));

            if (rules.looking) look(anchor, violation, exact_positives - exact_u, exact_v, multiplier);
        }

        const Floats by_negatives = load(columns.v_cost.data() + anchor * TILE + label) * sum(3);
        const Floats by_positives = load(columns.u_cost.data() + anchor * TILE + label) * sum(2);
        const Floats rest = by_negatives - by_positives;
        const Floats noise = rules.rounding * (absolute(by_negatives) + absolute(by_positives));
        const Floats slope = where(absolute(rest) > noise, rest);
        const Floats square = moved(at(state.slope_square, anchor), slope * slope, forget_slope);
        put(state.slope_square, anchor, square);
        const Floats typical = larger(root(square), all(1.17549435e-38f));
        const Floats step = rules.threshold_rate * deviation * (slope / typical);
        put(state.thresholds, anchor, at(state.thresholds, anchor) - where(active, step));
    }

    // Of the labels at all anchors, once they have learned.
    float value() const { return total(where(active, values)); }

  private:
    // State.look_
    void look(int anchor, Floats violation, Floats recall, Floats false_positives, Floats multiplier) {
        const State& state = problem.state;
        const Rules& rules = problem.rules;
        const Floats lowest = at(state.lowest_violation, anchor), before = at(state.fruitless_steps, anchor);
        const Ints better = violation < rules.progress * lowest;
        const Ints nothing = (recall < rules.smallest_size) & (false_positives < rules.smallest_size);
        const Ints pressed = nothing | (multiplier >= rules.max_multiplier);
        const Floats more = where(pressed, all(static_cast<float>(rules.looking)));
        const Floats fruitless = where(~(better | (violation <= 0.0f)), before + more);
        put(state.lowest_violation, anchor, chosen(active & better, violation, lowest));
        put(state.fruitless_steps, anchor, chosen(active, fruitless, before));
    }

    const Problem& problem;
    const int64_t first;
    int used;
    Ints active;
    Floats weight, u_unit, v_unit, positives_came;
    Floats total_cost = {}, share, counts_for = {};  // from the weighing
    Ints exact_drives = {};
    bool counts;  // errors of some label
    Floats forget, forget_slope, positives, exact_positives, deviation;  // from the start of learning
    Floats values = {};  // from learning

    Floats get(const float* from) const { return FULL ? load(from) : load(from, used); }
    void set(float* to, Floats value) const { FULL ? store(to, value) : store(to, value, used); }
    Floats entry(const Entry& entry, int anchor) const {
        const float* from = entry.data + anchor * entry.anchor_stride;
        return entry.label_stride ? get(from + first) : all(*from);
    }
    Floats at(const float* state, int anchor) const {
        const float* from = state + anchor * problem.batch.labels + first;
        fetch(from + TILE, LANES);  // for the next tile
        return get(from);
    }
    void put(float* state, int anchor, Floats value) const {
        set(state + anchor * problem.batch.labels + first, value);
    }
    Floats multiplier(int anchor) const {
        return problem.table.multiplier.data ? entry(problem.table.multiplier, anchor)
                                             : at(problem.state.multipliers, anchor);
    }
};

}  // namespace aimfor

// Weigh: costs from the state before the pass, and one step of the state after it, as in _step.py and _state.py.
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

// The buffers of State in _state.py: [K, L] where nothing else is said.
struct State {
    float* class_weight;  // [2, L]
    int64_t* steps;       // [L]
    float* thresholds;
    float* multipliers;
    float* rates;           // [4, K, L]
    float* positives;       // [L]
    float* exact_positives;  // [L]
    float* negatives;        // [L]
    float* exact_negatives;  // [L]
    float* score_mean;      // [L]
    float* score_variance;  // [L]
    float* slope_square;
    float* violation_square;
    float* lowest_violation;
    float* fruitless_steps;
};

// Options of the loss and constants of _state.py.
struct Rules {
    float dual_rate, threshold_rate, sharpness, leak;
    float log_loss;  // share of log-loss in the gradient, see of_aim
    float forget, forget_slope, progress, max_multiplier, longest_count, smallest_size, smallest_deviation, rounding;
    float outlying, mean_rounding, nearest_to_ends;
    int64_t warmup;
    int32_t surrogate;  // SurrogateKind
    int32_t tight;      // reached by a ladder from the hinge
    int32_t exact;      // 0-1 rates drive the multipliers
    int32_t learning;   // whether the state moves
    int32_t exclusive;  // labels are exclusive classes, of which log-loss is the cross-entropy
    int32_t look_every;   // batches of a label between two looks for constraints that cannot be met
    int32_t count_every;  // the same for its errors, where they are not needed in every one; a power of two
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
inline Floats inside(Floats prior, const Rules& rules) {
    return smaller(larger(prior, all(rules.nearest_to_ends)), all(1.0f - rules.nearest_to_ends));
}

// The root of State._square_reach
inline Floats reach(Floats variance, Floats mean, const Rules& rules) {
    const Floats deviation = root(variance);
    return chosen(deviation > rules.mean_rounding * absolute(mean), rules.outlying * deviation, all(INFINITY));
}

struct Rates {
    Floats u, v, p;
};

// An entry of the table at one anchor, for the labels of a tile.
struct Given {
    const float* each;   // of every label; null where it is one number for all of them
    float same[LANES];

    Given(const Entry& entry, int anchor, int64_t first) : each(nullptr) {
        const float* from = entry.data + anchor * entry.anchor_stride;
        if (entry.label_stride) each = from + first;
        else store(same, all(*from));
    }
    explicit Given(const float* each) : each(each) {}
};

// The table, the state and the sums at one anchor, from the first label of a tile on: pointers that are worked out once
// for all labels of the tile.
struct Row {
    const int64_t here;  // in arrays of [K, L]
    const Given width, objective_u, objective_v, load_u, load_v, room, room_recall, multiplier;
    const bool multiplier_is_given;
    float *const thresholds, *const multipliers, *const slope_square, *const violation_square;
    float *const lowest_violation, *const fruitless_steps;
    float *const surrogate_u, *const surrogate_v, *const exact_u, *const exact_v;
    float *const u_cost, *const v_cost, *const thresholds_of_tile;
    const float* sums[SUMS];

    Row(const Problem& problem, Columns& columns, int anchor, int64_t first)
        : here(anchor * problem.batch.labels + first),
          width(problem.table.width, anchor, first),
          objective_u(problem.table.objective_u, anchor, first),
          objective_v(problem.table.objective_v, anchor, first),
          load_u(problem.table.load_u, anchor, first),
          load_v(problem.table.load_v, anchor, first),
          room(problem.table.room, anchor, first),
          room_recall(problem.table.room_recall, anchor, first),
          multiplier(problem.table.multiplier.data ? Given(problem.table.multiplier, anchor, first)
                                                   : Given(problem.state.multipliers + here)),
          multiplier_is_given(problem.table.multiplier.data != nullptr),
          thresholds(problem.state.thresholds + here),
          multipliers(problem.state.multipliers + here),
          slope_square(problem.state.slope_square + here),
          violation_square(problem.state.violation_square + here),
          lowest_violation(problem.state.lowest_violation + here),
          fruitless_steps(problem.state.fruitless_steps + here),
          surrogate_u(problem.state.rates + here),
          surrogate_v(surrogate_u + problem.anchors * problem.batch.labels),
          exact_u(surrogate_v + problem.anchors * problem.batch.labels),
          exact_v(exact_u + problem.anchors * problem.batch.labels),
          u_cost(columns.u_cost.data() + anchor * TILE),
          v_cost(columns.v_cost.data() + anchor * TILE),
          thresholds_of_tile(columns.thresholds.data() + anchor * TILE) {
        for (int which = 0; which < SUMS; ++which) sums[which] = columns.sum(which, anchor);
    }
};

// What to bring near of the next tile while the pass over this one has no use for memory: the processor does not look
// ahead by itself over rows that lie pages apart. LANES rows of scores and some anchors of the state come with each LANES
// labels.
struct Ahead {
    const Problem& problem;
    const Place& place;

    void operator()(int label, Upcoming& upcoming) const {
        const Batch& batch = problem.batch;
        const bool last = place.first_row + place.rows == batch.rows;  // rows of these labels
        const int64_t row = last ? 0 : place.first_row + place.rows, next = place.first_label + (last ? TILE : 0);
        if (label % LANES || next >= batch.labels) return;
        const bool scores = batch.score_type == FLOAT32 && batch.scores.label_stride == 1;
        const bool weights = batch.weights.data && batch.weights.label_stride == 1;
        const bool mask = batch.mask.data && batch.mask.label_stride == 1;
        for (int64_t one = row + label; one < std::min(batch.rows, row + label + LANES); ++one) {
            if (scores) upcoming.add(at<float>(batch.scores, one, next));
            if (weights) upcoming.add(at<float>(batch.weights, one, next));
            if (mask) upcoming.add(at<uint8_t>(batch.mask, one, next));
        }
        if (!last) return;
        const State& state = problem.state;
        const int64_t size = problem.anchors * batch.labels;
        for (int64_t anchor = label / LANES; anchor < problem.anchors; anchor += TILE / LANES) {
            const int64_t here = anchor * batch.labels + next;
            for (const float* from : {state.thresholds, state.multipliers, state.rates, state.rates + size,
                                      state.slope_square, state.violation_square}) {
                upcoming.add(from + here);
            }
            const Entry& load_v = problem.table.load_v;
            if (load_v.label_stride) upcoming.add(load_v.data + anchor * load_v.anchor_stride + next);
        }
    }
};

// LANES labels of a tile or, where the group is not FULL, as many as there are left.
template <bool FULL>
class Group {
  public:
    Group(const Problem& problem, int64_t first) : problem(problem), first(first) {
        used = static_cast<int>(std::min<int64_t>(LANES, problem.batch.labels - first));
        const State& state = problem.state;
        const int64_t L = problem.batch.labels;
        const Floats positives = get(state.class_weight + first);
        const Floats negatives = get(state.class_weight + L + first);
        const Floats negative = get(problem.census + first), positive = get(problem.census + L + first);
        const Floats came = negative + positive;
        active = (positives > 0.0f) & (negatives > 0.0f) & (came > 0.0f);
        const Floats prior = chosen(active, inside(positives / (positives + negatives), problem.rules), all(0.5f));
        weight = chosen(active, came, all(1.0f));
        u_unit = where(active, 1.0f / (prior * weight));
        v_unit = where(active, 1.0f / ((1.0f - prior) * weight));
        positives_came = positive * u_unit;
        negatives_came = negative * v_unit;
    }

    // Weights of u and v in the Lagrangian of each label at one anchor; `label` is the first of the group in its tile.
    void weigh(const Row& row, int label) {
        const Floats width = at(row.width, label), multiplier = at(row.multiplier, label);
        const Floats load_u = at(row.load_u, label) + at(row.room_recall, label);
        const Floats u = width * (at(row.objective_u, label) + multiplier * load_u);
        const Floats v = width * (at(row.objective_v, label) + multiplier * at(row.load_v, label));
        store(row.u_cost + label, u);
        store(row.v_cost + label, v);
        store(row.thresholds_of_tile + label, get(row.thresholds + label));
        total_u += u;
        total_v += v;
        total_cost += u + v;
    }

    // Once all anchors are weighed: divides by their total, and by what turns sums into rates.
    void share_costs(Columns& columns, int label) {
        const Floats divisor = chosen(total_cost > 0.0f, total_cost, all(1.0f)) * static_cast<float>(problem.batch.labels);
        share = where(active, 1.0f / divisor);
        const Floats u_share = share * u_unit, v_share = share * v_unit;
        for (int anchor = 0; anchor < problem.anchors; ++anchor) {
            float *u = columns.u_cost.data() + anchor * TILE + label, *v = columns.v_cost.data() + anchor * TILE + label;
            store(u, load(u) * u_share);
            store(v, load(v) * v_share);
        }
        const State& state = problem.state;
        const Rules& rules = problem.rules;
        steps = steps_of(state.steps + first);
        const Ints warming = rules.tight ? steps < within_int(rules.warmup) : Ints{};
        const Ints surrogate = warming ? same(HINGE) : same(rules.surrogate);
        store(columns.surrogate + label, active ? surrogate : same(NO_SURROGATE));
        const Floats deviation = larger(root(get(state.score_variance + first)), all(rules.smallest_deviation));
        const Ints sharp = rules.tight ? ~warming : Ints{};
        store(columns.sharpness + label, chosen(sharp, rules.sharpness / deviation, all(1.0f)));
        // State.counts_for
        exact_drives = rules.exact ? ~Ints{} : warming;
        const Ints always = exact_drives | (steps < rules.count_every);
        due = ((steps + 1) & (rules.count_every - 1)) == 0;
        const Floats others = where(due, all(static_cast<float>(rules.count_every)));
        const Floats for_batches = chosen(always, all(1.0f), others);
        counts_for = rules.learning ? where(active, for_batches) : Floats{};
        counts = bits(counts_for > 0.0f) != 0;
        store(columns.counts_for + label, counts_for);
        share_gradient(columns, label);
        store(columns.score_mean + label, get(state.score_mean + first));
    }

    // _share_of_aim of _step.py, and the cost of log-loss.
    void share_gradient(Columns& columns, int label) {
        const float log_share = problem.rules.log_loss, labels = static_cast<float>(problem.batch.labels);
        const bool exclusive = problem.rules.exclusive;
        const Floats positives = get(problem.state.class_weight + first);
        const Floats negatives = get(problem.state.class_weight + problem.batch.labels + first);
        const Floats of_rows = total_u / positives + total_v / negatives;
        const Floats found = 0.5f * (positives + negatives) * (of_rows / total_cost);
        const Floats size = exclusive ? all(1.0f) : chosen(active & (found > 0.0f), found, all(1.0f));
        of_aim = (1.0f - log_share) / (log_share * size + (1.0f - log_share));
        log_cost = where(active, (1.0f - of_aim) / ((exclusive ? 1.0f : labels) * weight));
        store(columns.of_aim + label, of_aim);
        store(columns.log_cost + label, log_cost);
    }

    // What the step of a label has for all anchors.
    void start_learning(const Columns& columns, int label) {
        const State& state = problem.state;
        const Rules& rules = problem.rules;
        const Floats first_mean = 1.0f / larger(as_floats(steps - active), all(1.0f));  // a set mask is -1
        forget = where(active, larger(first_mean, all(rules.forget)));
        forget_slope = where(active, larger(first_mean, all(rules.forget_slope)));
        const Floats variance = load(columns.squares() + label) / weight;
        positives = moved(get(state.positives + first), positives_came, forget);
        exact_positives = moved(get(state.exact_positives + first), positives_came, forget * counts_for);
        looking = bits(due) ? active & ((steps + 1) % rules.look_every == 0) : Ints{};
        looks = bits(looking) != 0;
        const Floats before = get(state.score_variance + first);
        const Floats farthest = reach(before, get(state.score_mean + first), rules);
        const Floats spread = moved(before, smaller(variance, farthest * farthest), forget);
        if (rules.learning) {
            set(state.positives + first, positives);
            set(state.exact_positives + first, exact_positives);
            set(state.negatives + first, moved(get(state.negatives + first), negatives_came, forget));
            set(state.exact_negatives + first,
                moved(get(state.exact_negatives + first), negatives_came, forget * counts_for));
            set(state.score_variance + first, spread);
            for (int lane = 0; lane < used; ++lane) state.steps[first + lane] -= active[lane];
        }
        threshold_step = where(active, rules.threshold_rate * root(spread));
        if (rules.log_loss > 0.0f) log_loss = log_cost * load(columns.log_loss() + label);
    }

    // Adds the value at one anchor; where the loss is learning, one step of the state there, as in State.learn_.
    void learn(const Row& row, int label) {
        const Rules& rules = problem.rules;
        auto sum = [&](int which) { return load(row.sums[which] + label); };
        const Rates surrogate = {sum(0) * u_unit, sum(1) * v_unit, positives_came};
        const Floats load_u = at(row.load_u, label), load_v = at(row.load_v, label);
        const Floats room = at(row.room, label), room_recall = at(row.room_recall, label);
        auto load_at = [&](const Rates& rates) { return load_u * rates.u + load_v * rates.v; };
        auto room_at = [&](const Rates& rates) { return room + room_recall * (rates.p - rates.u); };
        auto violation_at = [&](const Rates& rates) { return load_at(rates) - room_at(rates); };

        const Floats multiplier = at(row.multiplier, label);
        const Floats objective = at(row.objective_u, label) * surrogate.u + at(row.objective_v, label) * surrogate.v;
        const Floats lagrangian = objective + multiplier * violation_at(surrogate);
        values += share * at(row.width, label) * lagrangian;
        if (!rules.learning) return;

        auto running = [&](float* rates, Floats now, Floats share) {
            const Floats rate = moved(get(rates + label), now, share);
            set(rates + label, rate);
            return rate;
        };
        Rates driving = surrogate;
        Rates usual = {running(row.surrogate_u, surrogate.u, forget), running(row.surrogate_v, surrogate.v, forget),
                       positives};
        Floats exact_u = {}, exact_v = {};  // where nothing is counted nobody looks at them
        if (counts) {
            const Rates exact = {sum(4) * u_unit, sum(5) * v_unit, positives_came};
            exact_u = running(row.exact_u, exact.u, forget * counts_for);
            exact_v = running(row.exact_v, exact.v, forget * counts_for);
            driving = {chosen(exact_drives, exact.u, driving.u), chosen(exact_drives, exact.v, driving.v), driving.p};
            usual = {chosen(exact_drives, exact_u, usual.u), chosen(exact_drives, exact_v, usual.v), usual.p};
        }

        if (row.multiplier_is_given) {
            set(row.multipliers + label, chosen(active, multiplier, get(row.multipliers + label)));
        } else {
            const Floats load = load_at(usual), room = room_at(usual), size = larger(load, absolute(room));
            const Floats relative = chosen(
                size > rules.smallest_size, violation_at(driving) / larger(size, all(rules.smallest_size)),
                all(-1.0f));
            const Floats square = running(row.violation_square, relative * relative, forget);
            const Floats step = relative / larger(root(square), all(1.0f));
            const Floats stepped = smaller(
                larger(multiplier + rules.dual_rate * step, Floats{}), all(rules.max_multiplier));
            set(row.multipliers + label, chosen(active, stepped, multiplier));

            if (looks) {
                const Rates exact = {exact_u, exact_v, exact_positives};
                look(row, label, load - room, violation_at(exact), exact, multiplier);
            }
        }

        const Floats by_negatives = aimfor::load(row.v_cost + label) * sum(3);
        const Floats by_positives = aimfor::load(row.u_cost + label) * sum(2);
        const Floats rest = by_negatives - by_positives;
        const Floats noise = rules.rounding * (absolute(by_negatives) + absolute(by_positives));
        const Floats slope = where(absolute(rest) > noise, rest);
        const Floats square = running(row.slope_square, slope * slope, forget_slope);
        // Before the root: the square of a small slope may be 0, which is no reason for a step without bound.
        const Floats typical = root(larger(square, all(1.17549435e-38f)));
        set(row.thresholds + label, get(row.thresholds + label) - threshold_step * (slope / typical));
    }

    // Of the labels at all anchors, once they have learned.
    float value() const { return total(where(active, of_aim * values + log_loss)); }

  private:
    // State._look_
    void look(const Row& row, int label, Floats violation, Floats true_violation, const Rates& exact, Floats multiplier) {
        const Rules& rules = problem.rules;
        const Floats lowest = get(row.lowest_violation + label), before = get(row.fruitless_steps + label);
        const Ints better = violation < rules.progress * lowest;
        const Ints nothing = (exact.p - exact.u < rules.smallest_size) & (exact.v < rules.smallest_size);
        const Ints pressed = nothing | (multiplier >= rules.max_multiplier);
        const Floats more = where(pressed, all(static_cast<float>(rules.look_every)));
        const Ints met = (violation <= 0.0f) | (at(row.width, label) <= 0.0f) | (~nothing & (true_violation <= 0.0f));
        const Floats fruitless = where(~(better | met), before + more);
        set(row.lowest_violation + label, chosen(looking & better, violation, lowest));
        set(row.fruitless_steps + label, chosen(looking, fruitless, before));
    }

    const Problem& problem;
    const int64_t first;
    int used;
    Ints active;
    Floats weight, u_unit, v_unit, positives_came, negatives_came;
    Floats total_u = {}, total_v = {}, total_cost = {}, share, counts_for = {}, log_cost, of_aim;  // from the weighing
    Ints steps, exact_drives = {}, due = {};
    bool counts;  // errors of some label
    Ints looking = {};
    bool looks;  // at some label
    Floats forget, forget_slope, positives, exact_positives, threshold_step;  // from the start of learning
    Floats values = {}, log_loss = {};  // from learning

    Floats get(const float* from) const { return FULL ? load(from) : load(from, used); }
    void set(float* to, Floats value) const { FULL ? store(to, value) : store(to, value, used); }
    Floats at(const Given& given, int label) const { return given.each ? get(given.each + label) : load(given.same); }

    Ints steps_of(const int64_t* from) const {
        Ints steps = {};
        for (int lane = 0; lane < (FULL ? LANES : used); ++lane) steps[lane] = within_int(from[lane]);
        return steps;
    }
    // Beyond what an int holds a count is only large, but its last bits go on: by them batches are due.
    static int32_t within_int(int64_t count) {
        constexpr int64_t large = 1 << 30;
        return static_cast<int32_t>(count < large ? count : large | (count & (large / 2 - 1)));
    }
};

}  // namespace aimfor

// Relax: the five surrogates of _surrogates.py, as functions of z = -margin, by how much an entry is on the wrong side.
//
// A curve is one surrogate along a strip, for two anchors at once, so that a score and its gradient are loaded once for
// both. `start` begins a pair of anchors, `take` adds one vector to the sums and to its gradient, and `sums` are those of
// loss and slope, lane by lane.
// Sharp surrogates take z in standard deviations of the scores.
#pragma once

#include <algorithm>
#include <utility>

#include "batches.h"

namespace aimfor {

enum SurrogateKind : int32_t { HINGE = 0, LOG = 1, SMOOTH_HINGE = 2, RAMP = 3, SIGMOID = 4, LAST_SURROGATE = SIGMOID };

// Vectors of a tile that belong together: rows of LANES labels, or all rows of one label.
struct Strip {
    const float* scores;
    const float* weights;
    float* gradient;
    int count;
};

// What a strip is held against; one of each more than there are anchors, to fill the last pair.
struct Setting {
    const Floats* thresholds;
    const Floats* costs;
    Floats* factors;  // room for what a curve works out of each threshold
    Floats* room;     // and of each entry, for two anchors
    int anchors;
    Upcoming& upcoming;  // to be fetched on the way
    Floats middle;       // of the thresholds
    Floats sharpness, leak;
};

struct Pair {
    Floats first, second;
};

// Sums along a strip at one anchor; to the loss belongs, in bits, the log of 1 + less_one.
struct LossAndSlope {
    Floats loss, slope, less_one = {};
};

struct LossAndSlopes {
    LossAndSlope first, second;
};

template <bool WEIGHTED>
inline Floats weighted(Floats one, Floats weight) { return WEIGHTED ? weight * one : one; }

// The sum and, where the mask is set, one more: an operation with AVX-512, and else as a product, so that several share
// the masked weight.
template <bool WEIGHTED>
inline Floats add_where(Ints mask, Floats sum, Floats one, Floats weight) {
#if defined(__AVX512DQ__)
    return mask ? sum + weighted<WEIGHTED>(one, weight) : sum;
#else
    return sum + one * where(mask, WEIGHTED ? weight : all(1.0f));
#endif
}

// A sum of numbers, and one of marks; the latter are whole numbers where there are no weights.
template <bool WEIGHTED>
struct Sum {
    Floats value = {};

    void add(Floats one, Floats weight) { value += weighted<WEIGHTED>(one, weight); }
};

template <bool WEIGHTED>
struct Tally {
    Floats weights = {};
    Ints marks = {};

    void add(Ints mark, Floats weight) {
        if (WEIGHTED) weights = add_where<true>(mark, weights, all(1.0f), weight);
        else marks = count_where(mark, marks);
    }
    Floats value() const { return WEIGHTED ? weights : as_floats(marks); }
};

// Surrogates of a few operations, at one anchor.

template <bool WEIGHTED>
class Hinge {
  public:
    Hinge(const Setting& setting, int anchor)
        : edge(setting.thresholds[anchor] - 1.0f), cost(setting.costs[anchor]) {}

    // Into two sums by turns, because each waits for the one before.
    Floats take(Floats score, Floats weight, Floats gradient) {
        const Floats over = score - edge;
        const Ints felt = is_positive(over);
        other_loss = add_where<WEIGHTED>(felt, other_loss, over, weight);
        std::swap(loss, other_loss);
        slope.add(felt, weight);
        return add_where<WEIGHTED>(felt, gradient, cost, weight);
    }
    LossAndSlope sums() const { return {loss + other_loss, slope.value()}; }

  private:
    const Floats edge, cost;
    Floats loss = {}, other_loss = {};
    Tally<WEIGHTED> slope;
};

template <bool WEIGHTED>
class SmoothHinge {
  public:
    SmoothHinge(const Setting& setting, int anchor)
        : edge(setting.thresholds[anchor] - 1.0f), cost(2.0f * setting.costs[anchor]) {}

    Floats take(Floats score, Floats weight, Floats gradient) {
        const Floats over = not_negative(score - edge), inside = at_most_one(over);
        const Floats share = weighted<WEIGHTED>(inside, weight);
        overs.add(over, weight);
        insides += share;
        squares += share * inside;
        return gradient + cost * share;
    }
    // Without an error both sums are of the same numbers, and their difference is 0.
    LossAndSlope sums() const {
        return {squares + 2.0f * (overs.value - insides), 2.0f * insides};
    }

  private:
    const Floats edge, cost;
    Sum<WEIGHTED> overs;
    Floats insides = {}, squares = {};
};

template <bool WEIGHTED>
class Ramp {
  public:
    Ramp(const Setting& setting, int anchor)
        : threshold(setting.thresholds[anchor]), sharpness(setting.sharpness), leak(setting.leak),
          cost(setting.costs[anchor] * sharpness), leak_cost(leak * cost) {}

    Floats take(Floats score, Floats weight, Floats gradient) {
        const Floats over = (score - threshold) * sharpness + 1.0f, above = not_negative(over);
        overs.add(above, weight);
        insides.add(at_most_one(above), weight);
        const Ints beyond = score >= threshold, rising = is_positive(over) & ~beyond;
        rises.add(rising, weight);
        beyonds.add(beyond, weight);
        return gradient + weighted<WEIGHTED>(where(rising, cost) + where(beyond, leak_cost), weight);
    }
    LossAndSlope sums() const {
        const Floats slope = sharpness * (rises.value() + leak * beyonds.value());
        return {insides.value + leak * (overs.value - insides.value), slope};
    }

  private:
    const Floats threshold, sharpness, leak, cost, leak_cost;
    Sum<WEIGHTED> overs, insides;
    Tally<WEIGHTED> rises, beyonds;
};

template <template <bool> class Rule, bool WEIGHTED>
class Direct {
  public:
    static constexpr int BLOCK = ROWS;  // nothing is done after it

    Direct(const Strip&, const Setting& setting) : setting(setting) {}

    struct Anchors {
        Rule<WEIGHTED> first, second;

        Floats take(int, Floats score, Floats weight, Floats gradient) {
            return second.take(score, weight, first.take(score, weight, gradient));
        }
        void after_block(const Strip&) {}
        LossAndSlopes sums() const { return {first.sums(), second.sums()}; }
    };
    Anchors start(int anchor) const { return {{setting, anchor}, {setting, anchor + 1}}; }

  private:
    const Setting& setting;
};

// How far scores and thresholds of a strip lie apart, which decides on the form of those made of e^z.
enum Range : int32_t {
    NEAR = 0,  // e^z is e^(f - middle) e^(middle - b), and small enough for products
    FAR = 1,   // the same, but some e^z have to be cut off
    WIDE = 2,  // thresholds lie too far apart for that
};

// e^z of a strip, at most `largest`.
template <Range RANGE>
class Exponentials {
  public:
    Exponentials(const Strip& strip, const Setting& setting, float largest) : setting(setting), largest(all(largest)) {
        for (int anchor = 0; RANGE != WIDE && anchor <= setting.anchors; ++anchor) {
            const Floats power = (setting.middle - setting.thresholds[anchor]) * setting.sharpness;
            setting.factors[anchor] = exponential(between(power, -87.0f, 87.0f));
        }
        for (int index = 0; RANGE != WIDE && index < strip.count; ++index) {
            const Floats score = load(strip.scores + index * LANES);
            const Floats power = between((score - setting.middle) * setting.sharpness, -60.0f, 60.0f);
            of_scores[index] = where(score > ABSENT, exponential(power));
        }
    }

    Floats at(int index, Floats score, Floats threshold, Floats factor) const {
        if (RANGE == NEAR) return of_scores[index] * factor;
        if (RANGE == FAR) return smaller(of_scores[index] * factor, largest);
        return smaller(exponential(between((score - threshold) * setting.sharpness, -87.0f, 87.0f)), largest);
    }

    const Setting& setting;

  private:
    const Floats largest;
    Floats of_scores[ROWS];
};

// A curve made of e^z. Its rule for one anchor takes x = e^z, cut off at LARGEST_X.
template <template <Range, bool> class Rule, Range RANGE, bool WEIGHTED>
class Exponential {
  public:
    static constexpr int BLOCK = Rule<RANGE, WEIGHTED>::BLOCK;

    Exponential(const Strip& strip, const Setting& setting)
        : exponentials(strip, setting, Rule<RANGE, WEIGHTED>::LARGEST_X) {}

    struct Anchors {
        const Exponentials<RANGE>& exponentials;
        const Pair factor;
        Rule<RANGE, WEIGHTED> first, second;

        Floats take(int index, Floats score, Floats weight, Floats gradient) {
            const Floats x = exponentials.at(index, score, first.threshold, factor.first);
            const Floats y = exponentials.at(index, score, second.threshold, factor.second);
            // In this order each product and its sum are one operation.
            return gradient + first.take(index, score, weight, x) + second.take(index, score, weight, y);
        }
        void after_block(const Strip& strip) {
            first.after_block(strip);
            second.after_block(strip);
        }
        LossAndSlopes sums() const { return {first.sums(), second.sums()}; }
    };
    Anchors start(int anchor) const {
        const Setting& setting = exponentials.setting;
        const Pair factor = {setting.factors[anchor], setting.factors[anchor + 1]};
        return {exponentials, factor, {setting, anchor}, {setting, anchor + 1}};
    }

  private:
    const Exponentials<RANGE> exponentials;
};

template <Range RANGE, bool WEIGHTED>
class Sigmoid {
  public:
    static constexpr int BLOCK = ROWS;  // nothing is done after it
    static constexpr float LARGEST_Z = 40.0f, LARGEST_X = 2.3538527e17f;

    Sigmoid(const Setting& setting, int anchor)
        : threshold(setting.thresholds[anchor]), sharpness(setting.sharpness), leak(setting.leak),
          cost(setting.costs[anchor] * sharpness), leak_cost(leak * cost) {}

    const Floats threshold;

    Floats take(int, Floats score, Floats weight, Floats x) {
        const Floats rest = 1.0f / (x + 1.0f), probability = x * rest, slope = probability * rest;
        const Ints beyond = score > threshold;
        probabilities.add(probability, weight);
        slopes.add(slope, weight);
        overs.add(not_negative(score - threshold), weight);
        beyonds.add(beyond, weight);
        return weighted<WEIGHTED>(cost * slope + where(beyond, leak_cost), weight);
    }
    void after_block(const Strip&) {}
    LossAndSlope sums() const {
        const Floats slope = sharpness * (slopes.value + leak * beyonds.value());
        return {probabilities.value + leak * sharpness * overs.value, slope};
    }

  private:
    const Floats sharpness, leak, cost, leak_cost;
    Sum<WEIGHTED> probabilities, slopes, overs;
    Tally<WEIGHTED> beyonds;
};

constexpr float BITS = 1.44269504f;  // of a natural logarithm

// In bits. The sum of logs is the log of a product, kept as product - 1 so that small terms keep their digits. A block
// of factors is at most 2^40; after it 2^40 is taken out of a product that has come so far. What is cut off above
// LARGEST_X is added by itself.
template <Range RANGE, bool WEIGHTED>
class Log {
  public:
    static constexpr int BLOCK = RANGE == NEAR ? 4 : 2;
    static constexpr float LARGEST_X = RANGE == NEAR ? 1023.0f : 1048575.0f;  // above 2^20 log(1 + e^z) is z to 7 digits
    static constexpr float LARGEST_Z = RANGE == NEAR ? 6.9304947659f : 13.862942657f;

    Log(const Setting& setting, int anchor)
        : threshold(setting.thresholds[anchor]), cost(setting.costs[anchor] * BITS) {}

    const Floats threshold;

    Floats take(int, Floats score, Floats, Floats x) {
        const Floats probability = x / (x + 1.0f);
        less_one = less_one * (x + 1.0f) + x;
        if (RANGE != NEAR) cut_off += not_negative(score - threshold - LARGEST_Z);
        slopes += probability;
        return cost * probability;
    }
    void after_block(const Strip&) {
        const Ints full = (Ints)less_one > (Ints)all(1099511627776.0f);  // 2^40
        taken_out -= full;
        less_one = full ? less_one * 9.094947017729282e-13f - 1.0f : less_one;
    }
    LossAndSlope sums() const {
        return {BITS * cut_off + 40.0f * as_floats(taken_out), BITS * slopes, less_one};
    }

  private:
    const Floats cost;
    Floats cut_off = {}, slopes = {}, less_one = {};
    Ints taken_out = {};
};

// With weights every entry takes a log of its own: z or 0, and -log(1 - u) where u is the smaller share. The latter are
// taken when all shares are known: a chain of operations from one to the other would be too long for the processor to
// look past.
template <Range RANGE>
class Log<RANGE, true> {
  public:
    static constexpr int BLOCK = ROWS;
    static constexpr float LARGEST_X = Log<RANGE, false>::LARGEST_X, LARGEST_Z = Log<RANGE, false>::LARGEST_Z;

    Log(const Setting& setting, int anchor)
        : threshold(setting.thresholds[anchor]), cost(setting.costs[anchor] * BITS),
          smaller_shares(setting.room + anchor % 2 * ROWS) {}

    const Floats threshold;

    Floats take(int index, Floats, Floats weight, Floats x) {
        const Floats probability = x / (x + 1.0f), share = weight * probability;
        smaller_shares[index] = smaller(probability, 1.0f - probability);
        slopes += share;
        return cost * share;
    }
    void after_block(const Strip& strip) { losses = sum_of_losses(strip, threshold, smaller_shares); }
    LossAndSlope sums() const { return {BITS * losses, BITS * slopes}; }

  private:
    const Floats cost;
    Floats* const smaller_shares;
    Floats losses = {}, slopes = {};

    // On its own, so that its many constants leave the registers to those who call it.
    static __attribute__((noinline)) Floats sum_of_losses(const Strip& strip, Floats threshold, const Floats* shares) {
        Floats even = {}, odd = {};  // because each addition waits for the one before
        auto loss = [&](int index) {
            const Floats over = not_negative(load(strip.scores + index * LANES) - threshold);
            return load(strip.weights + index * LANES) * (over + minus_log_of_rest(shares[index]));
        };
        int index = 0;
        for (; index + 1 < strip.count; index += 2) {
            even += loss(index);
            odd += loss(index + 1);
        }
        if (index < strip.count) even += loss(index);
        return even + odd;
    }
};

}  // namespace aimfor

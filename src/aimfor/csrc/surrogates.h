// Relax: the five surrogates of surrogates.py, as functions of z = -margin, by how much an entry is on the wrong side.
#pragma once

#include <algorithm>

#include "batches.h"

namespace aimfor {

enum SurrogateKind : int32_t { HINGE = 0, LOG = 1, SMOOTH_HINGE = 2, RAMP = 3, SIGMOID = 4 };

struct Pair {
    Floats first, second;
};

// Vectors of a tile that belong together: rows of LANES labels, or all rows of one label.
struct Strip {
    const float* scores;
    const float* weights;
    float* gradient;
    int count;
};

// How far scores and thresholds of a strip lie apart, which decides on the form of those made of e^z.
enum Range : int32_t {
    NEAR = 0,  // e^z is e^(f - middle) e^(middle - b), and small enough for products
    FAR = 1,   // the same, but some e^z have to be cut off
    WIDE = 2,  // thresholds lie too far apart for that
};

constexpr float LARGEST_X = 1048576.0f;    // 2^20: above it log(1 + e^z) is z to seven digits
constexpr float LARGEST_Z = 13.862943611f;  // its logarithm

inline Range range_of(const Strip& strip, const Floats* thresholds, int anchors, Floats sharpness) {
    Floats low = thresholds[0], high = thresholds[0], top = all(ABSENT);
    for (int anchor = 1; anchor < anchors; ++anchor) {
        low = smaller(low, thresholds[anchor]);
        high = larger(high, thresholds[anchor]);
    }
    for (int index = 0; index < strip.count; ++index) top = larger(top, load(strip.scores + index * LANES));
    if (bits(~(sharpness * (high - low) <= 50.0f))) return WIDE;
    return bits(~(sharpness * (top - low) <= LARGEST_Z)) ? FAR : NEAR;
}

// A surrogate along a strip, for two anchors at once, so that a score is loaded once and a division serves both: `start`
// for a pair of anchors, `slopes` for one vector after the other (up to a factor UNIT), at last the sums of the loss,
// lane by lane. Sharp surrogates take z in standard deviations of the scores.

struct Hinge {
    static constexpr bool SHARP = false;
    static Floats loss(Floats z, Floats, Floats& slope) {
        Floats over = z + 1.0f;
        slope = where(over > 0.0f, all(1.0f));
        return larger(over, Floats{});
    }
};

struct SmoothHinge {
    static constexpr bool SHARP = false;
    static Floats loss(Floats z, Floats, Floats& slope) {
        Floats inside = smaller(larger(z + 1.0f, Floats{}), all(1.0f));
        slope = inside + inside;
        return inside * inside + 2.0f * larger(z, Floats{});
    }
};

struct Ramp {
    static constexpr bool SHARP = true;
    static Floats loss(Floats z, Floats leak, Floats& slope) {
        slope = where((z > -1.0f) & (z < 0.0f), all(1.0f)) + where(z > 0.0f, leak);
        return smaller(larger(z + 1.0f, Floats{}), all(1.0f)) + leak * larger(z, Floats{});
    }
};

// Surrogates of a few operations.
template <class Rule, bool WEIGHTED>
class Direct {
  public:
    static constexpr float UNIT = 1.0f;

    Direct(const Strip&, const Floats* thresholds, int, Floats sharpness, Floats leak)
        : thresholds(thresholds), sharpness(sharpness), leak(leak) {}

    void start(int anchor) {
        threshold = {thresholds[anchor], thresholds[anchor + 1]};
        loss = Pair{};
    }
    Pair slopes(int, Floats score, Floats weight) {
        Pair slope;
        Floats first = Rule::loss(scaled(score - threshold.first), leak, slope.first);
        Floats second = Rule::loss(scaled(score - threshold.second), leak, slope.second);
        loss.first += WEIGHTED ? weight * first : first;
        loss.second += WEIGHTED ? weight * second : second;
        return slope;
    }
    void after_four() {}
    Pair sums() const { return loss; }

  private:
    const Floats* thresholds;
    Floats sharpness, leak;
    Pair threshold, loss;

    Floats scaled(Floats z) const { return Rule::SHARP ? z * sharpness : z; }
};

// e^z of a strip.
template <Range RANGE>
class Exponentials {
  public:
    Exponentials(const Strip& strip, const Floats* thresholds, int anchors, Floats sharpness)
        : thresholds(thresholds), sharpness(sharpness) {
        if (RANGE == WIDE) return;
        Floats low = thresholds[0], high = thresholds[0];
        for (int anchor = 1; anchor < anchors; ++anchor) {
            low = smaller(low, thresholds[anchor]);
            high = larger(high, thresholds[anchor]);
        }
        middle = 0.5f * low + 0.5f * high;
        for (int index = 0; index < strip.count; ++index) {
            Floats score = load(strip.scores + index * LANES);
            Floats power = larger(smaller((score - middle) * sharpness, all(60.0f)), all(-60.0f));
            of_scores[index] = where(score > ABSENT, exponential(power));
        }
    }

    void start(int anchor) {
        threshold = {thresholds[anchor], thresholds[anchor + 1]};
        if (RANGE == WIDE) return;
        factors.first = exponential((middle - threshold.first) * sharpness);
        factors.second = exponential((middle - threshold.second) * sharpness);
    }
    Pair z(Floats score) const {
        return {(score - threshold.first) * sharpness, (score - threshold.second) * sharpness};
    }
    // At most `largest`.
    Pair at(int index, Pair z, float largest) const {
        if (RANGE == NEAR) return {of_scores[index] * factors.first, of_scores[index] * factors.second};
        Pair x = {exponential(z.first), exponential(z.second)};
        if (RANGE == FAR) x = {of_scores[index] * factors.first, of_scores[index] * factors.second};
        return {smaller(x.first, all(largest)), smaller(x.second, all(largest))};
    }

  private:
    const Floats* thresholds;
    Floats sharpness, middle;
    Pair factors, threshold;
    Floats of_scores[ROWS];
};

// Both quotients x / (1 + x) by one division; x may be at most 2^40.
inline Pair probabilities(Pair x) {
    Floats first = x.first + 1.0f, second = x.second + 1.0f;
    Floats inverse = 1.0f / (first * second);
    return {x.first * (second * inverse), x.second * (first * inverse)};
}

template <Range RANGE, bool WEIGHTED>
class Sigmoid {
  public:
    static constexpr float UNIT = 1.0f;

    Sigmoid(const Strip& strip, const Floats* thresholds, int anchors, Floats sharpness, Floats leak)
        : exponentials(strip, thresholds, anchors, sharpness), leak(leak) {}

    void start(int anchor) {
        exponentials.start(anchor);
        loss = Pair{};
    }
    Pair slopes(int index, Floats score, Floats weight) {
        const Pair z = exponentials.z(score), probability = probabilities(exponentials.at(index, z, 1e12f));
        Floats first = probability.first + leak * larger(z.first, Floats{});
        Floats second = probability.second + leak * larger(z.second, Floats{});
        loss.first += WEIGHTED ? weight * first : first;
        loss.second += WEIGHTED ? weight * second : second;
        return {slope(probability.first, z.first), slope(probability.second, z.second)};
    }
    void after_four() {}
    Pair sums() const { return loss; }

  private:
    Exponentials<RANGE> exponentials;
    Floats leak;
    Pair loss;

    Floats slope(Floats probability, Floats z) const {
        return probability * (1.0f - probability) + where(z > 0.0f, leak);
    }
};

// In bits. Without weights the sum of logs is the log of a product, kept as product - 1 so that small terms keep their
// digits.
template <Range RANGE, bool WEIGHTED>
class Log {
  public:
    static constexpr float UNIT = 1.44269504f;

    Log(const Strip& strip, const Floats* thresholds, int anchors, Floats sharpness, Floats)
        : exponentials(strip, thresholds, anchors, sharpness) {}

    void start(int anchor) {
        exponentials.start(anchor);
        loss = less_one = Pair{};
    }
    Pair slopes(int index, Floats score, Floats weight) {
        const Pair z = exponentials.z(score), x = exponentials.at(index, z, LARGEST_X);
        Pair more = {};
        if (RANGE != NEAR) more = {larger(z.first - LARGEST_Z, Floats{}), larger(z.second - LARGEST_Z, Floats{})};
        if (WEIGHTED) {
            more.first = weight * (more.first + log_of_one_plus(x.first));
            more.second = weight * (more.second + log_of_one_plus(x.second));
        } else {
            less_one.first = less_one.first * x.first + (less_one.first + x.first);
            less_one.second = less_one.second * x.second + (less_one.second + x.second);
        }
        if (WEIGHTED || RANGE != NEAR) {
            loss.first += more.first;
            loss.second += more.second;
        }
        return probabilities(x);
    }
    void after_four() {
        const float full = 1099511627776.0f;  // 2^40: four more factors of 2^20 fit
        if (!WEIGHTED && bits((less_one.first > full) | (less_one.second > full))) flush();
    }
    Pair sums() {
        if (!WEIGHTED) flush();
        return {UNIT * loss.first, UNIT * loss.second};
    }

  private:
    Exponentials<RANGE> exponentials;
    Pair loss, less_one;

    void flush() {
        loss.first += log_of_one_plus(less_one.first);
        loss.second += log_of_one_plus(less_one.second);
        less_one = Pair{};
    }
};

}  // namespace aimfor

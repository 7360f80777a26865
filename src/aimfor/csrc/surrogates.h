// Relax: the five surrogates of surrogates.py, as functions of z = -margin, by how much an entry is on the wrong side.
#pragma once

#include <algorithm>

#include "batches.h"

namespace aimfor {

enum SurrogateKind : int32_t { HINGE = 0, LOG = 1, SMOOTH_HINGE = 2, RAMP = 3, SIGMOID = 4 };

struct Pair {
    Floats first, second;
};

// Vectors of a tile that belong together, `stride` floats apart: rows of LANES labels, or LANES rows of one label.
struct Strip {
    const float* scores;
    const float* weights;
    float* gradient;
    int count;
    int stride;
};

// Loss and slope of single entries; the sharp ones take z in standard deviations of the scores.
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

struct Sigmoid {
    static Floats loss(Floats z, Floats leak, Floats& slope) {
        Floats x = exponential(z);
        return loss(x / (x + 1.0f), z, leak, slope);
    }
    static Floats loss(Floats probability, Floats z, Floats leak, Floats& slope) {
        slope = probability * (1.0f - probability) + where(z > 0.0f, leak);
        return probability + leak * larger(z, Floats{});
    }
};

struct Log {
    static constexpr float BITS = 1.44269504f;
    static constexpr float LARGEST_X = 1048576.0f;  // 2^20: above it log(1 + e^z) is z to seven digits
    static constexpr float LARGEST_Z = 13.862943611f;

    static Floats loss(Floats z, Floats, Floats& slope) {
        Floats x = smaller(exponential(z), all(LARGEST_X));
        slope = BITS * (x / (x + 1.0f));
        return BITS * (log_of_one_plus(x) + larger(z - LARGEST_Z, Floats{}));
    }
};

// The same along a strip, for two anchors at once, so that a score is loaded once and a division serves both: `start`
// for a pair of anchors, `slopes` for one vector after the other, at last the sums of the loss, lane by lane.
template <class Rule, bool WEIGHTED>
class Direct {
  public:
    static constexpr bool SHARP = Rule::SHARP;

    Direct(const Strip&, const Floats*, int, Floats, Floats leak) : leak(leak) {}

    void start(int) { loss = Pair{}; }
    Pair slopes(int, Pair z, Floats weight) {
        Pair slope;
        Floats first = Rule::loss(z.first, leak, slope.first), second = Rule::loss(z.second, leak, slope.second);
        loss.first += WEIGHTED ? weight * first : first;
        loss.second += WEIGHTED ? weight * second : second;
        return slope;
    }
    void after_four() {}
    Pair sums() const { return loss; }

  private:
    Floats leak;
    Pair loss;
};

// While the thresholds of a label are close together, e^z is e^(f - middle) e^(middle - b): one exponential per score
// and one per anchor, instead of one for each pair of them.
class Exponentials {
  public:
    Exponentials(const Strip& strip, const Floats* thresholds, int anchors, Floats sharpness)
        : thresholds(thresholds), sharpness(sharpness) {
        Floats low = thresholds[0], high = thresholds[0];
        for (int anchor = 1; anchor < anchors; ++anchor) {
            low = smaller(low, thresholds[anchor]);
            high = larger(high, thresholds[anchor]);
        }
        middle = 0.5f * low + 0.5f * high;
        const float far = 25.0f;
        factored = !bits(~(sharpness * (high - middle) <= far));
        if (!factored) return;
        for (int index = 0; index < strip.count; ++index) {
            Floats score = load(strip.scores + index * strip.stride);
            Floats power = larger(smaller((score - middle) * sharpness, all(60.0f)), all(-60.0f));
            of_scores[index] = where(score > ABSENT, exponential(power));
        }
    }

    void start(int anchor) {
        factors.first = exponential((middle - thresholds[anchor]) * sharpness);
        factors.second = exponential((middle - thresholds[anchor + 1]) * sharpness);
    }
    Pair at(int index, Pair z) const {
        if (!factored) return {exponential(z.first), exponential(z.second)};
        return {of_scores[index] * factors.first, of_scores[index] * factors.second};
    }

  private:
    const Floats* thresholds;
    Floats sharpness, middle;
    Pair factors;
    bool factored;
    Floats of_scores[ROWS];
};

// Both quotients x / (1 + x) by one division; x may be at most 2^40.
inline Pair probabilities(Pair x) {
    Floats first = x.first + 1.0f, second = x.second + 1.0f;
    Floats inverse = 1.0f / (first * second);
    return {x.first * second * inverse, x.second * first * inverse};
}

inline Pair cut(Pair x, float largest) { return {smaller(x.first, all(largest)), smaller(x.second, all(largest))}; }

template <bool WEIGHTED>
class SigmoidStrip {
  public:
    static constexpr bool SHARP = true;

    SigmoidStrip(const Strip& strip, const Floats* thresholds, int anchors, Floats sharpness, Floats leak)
        : exponentials(strip, thresholds, anchors, sharpness), leak(leak) {}

    void start(int anchor) {
        exponentials.start(anchor);
        loss = Pair{};
    }
    Pair slopes(int index, Pair z, Floats weight) {
        Pair slope, probability = probabilities(cut(exponentials.at(index, z), 1e12f));
        Floats first = Sigmoid::loss(probability.first, z.first, leak, slope.first);
        Floats second = Sigmoid::loss(probability.second, z.second, leak, slope.second);
        loss.first += WEIGHTED ? weight * first : first;
        loss.second += WEIGHTED ? weight * second : second;
        return slope;
    }
    void after_four() {}
    Pair sums() const { return loss; }

  private:
    Exponentials exponentials;
    Floats leak;
    Pair loss;
};

// Without weights the sum of logs is the log of a product, kept as product - 1 so that small terms keep their digits.
template <bool WEIGHTED>
class LogStrip {
  public:
    static constexpr bool SHARP = false;

    LogStrip(const Strip& strip, const Floats* thresholds, int anchors, Floats sharpness, Floats)
        : exponentials(strip, thresholds, anchors, sharpness) {}

    void start(int anchor) {
        exponentials.start(anchor);
        loss = less_one = Pair{};
    }
    Pair slopes(int index, Pair z, Floats weight) {
        Pair x = cut(exponentials.at(index, z), Log::LARGEST_X);
        Floats first = larger(z.first - Log::LARGEST_Z, Floats{}), second = larger(z.second - Log::LARGEST_Z, Floats{});
        if (WEIGHTED) {
            first = weight * (first + log_of_one_plus(x.first));
            second = weight * (second + log_of_one_plus(x.second));
        } else {
            less_one.first = less_one.first * x.first + (less_one.first + x.first);
            less_one.second = less_one.second * x.second + (less_one.second + x.second);
        }
        loss.first += first;
        loss.second += second;
        Pair slope = probabilities(x);
        return {Log::BITS * slope.first, Log::BITS * slope.second};
    }
    void after_four() {
        const float full = 1099511627776.0f;  // 2^40: four more factors of 2^20 fit
        if (!WEIGHTED && bits((less_one.first > full) | (less_one.second > full))) flush();
    }
    Pair sums() {
        if (!WEIGHTED) flush();
        return {Log::BITS * loss.first, Log::BITS * loss.second};
    }

  private:
    Exponentials exponentials;
    Pair loss, less_one;

    void flush() {
        loss.first += log_of_one_plus(less_one.first);
        loss.second += log_of_one_plus(less_one.second);
        less_one = Pair{};
    }
};

}  // namespace aimfor

// Log-loss beside the aim: no threshold, and one cost for each label.
#pragma once

#include "surrogates.h"

namespace aimfor {

// Log-loss along a strip, which has no threshold: gives its sum and adds its gradient. e^-|f| is at most 1, so the log
// of a product of half the rows stays within float.
template <bool WEIGHTED>
inline Floats log_loss(const Strip& strip, Floats cost) {
    static_assert(ROWS <= 252, "a product of half the rows stays within float");
    Floats over[2] = {}, less_one[2] = {};  // by turns, because each waits for the one before
    auto take = [&](int index, int turn) {
        const Floats score = load(strip.scores + index * LANES), size = absolute(score);
        // Beyond, and where the entry is absent, it is 0 and not so small that arithmetic would be slow.
        const Floats x = where(size < 80.0f, exponential(-smaller(size, all(80.0f))));
        const Floats rest = 1.0f / (x + 1.0f), less_likely = x * rest;
        const Floats probability = is_positive(score) ? rest : less_likely;
        float* const gradient = strip.gradient + index * LANES;
        if (WEIGHTED) {
            const Floats weight = load(strip.weights + index * LANES);
            over[turn] += weight * (not_negative(score) + minus_log_of_rest(less_likely));
            store(gradient, load(gradient) + cost * weight * probability);
        } else {
            over[turn] += not_negative(score);
            less_one[turn] = less_one[turn] * (x + 1.0f) + x;
            store(gradient, load(gradient) + cost * probability);
        }
    };
    int index = 0;
    for (; index + 2 <= strip.count; index += 2) {
        take(index, 0);
        take(index + 1, 1);
    }
    if (index < strip.count) take(index, 0);
    return over[0] + over[1] + log_of_one_plus(less_one[0]) + log_of_one_plus(less_one[1]);
}

}  // namespace aimfor

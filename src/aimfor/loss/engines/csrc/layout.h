// What the library says of itself: how its structs are laid out, and which number each surrogate has. Python compares
// both with its own when it loads the library.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>

#include "state.h"

namespace aimfor {

struct Field {
    const char* name;
    size_t place, size;
};

#define AIMFOR_FIELD(Struct, name) \
    Field { #name, offsetof(Struct, name), sizeof(Struct::name) }

inline std::string line(const char* name, size_t size, std::initializer_list<Field> fields) {
    std::string text = std::string(name) + " " + std::to_string(size) + ":";
    for (const Field& field : fields) {
        text += " " + std::string(field.name) + "@" + std::to_string(field.place) + "+" + std::to_string(field.size);
    }
    return text + "\n";
}

// One line for each struct: name, size, and place and size of every field.
inline std::string layout() {
#define F(name) AIMFOR_FIELD(Batch, name)
    std::string text = line("Batch", sizeof(Batch), {
        F(rows), F(labels), F(scores), F(label_values), F(weights), F(mask), F(starts), F(columns), F(stored),
        F(positions), F(positive), F(largest_score), F(largest_weight), F(score_type), F(label_type), F(threads)});
#undef F
#define F(name) AIMFOR_FIELD(Fault, name)
    text += line("Fault", sizeof(Fault), {F(kind), F(value)});
#undef F
#define F(name) AIMFOR_FIELD(Table, name)
    text += line("Table", sizeof(Table), {
        F(width), F(objective_u), F(objective_v), F(load_u), F(load_v), F(room), F(room_recall), F(multiplier)});
#undef F
#define F(name) AIMFOR_FIELD(State, name)
    text += line("State", sizeof(State), {
        F(class_weight), F(steps), F(thresholds), F(multipliers), F(rates), F(positives), F(exact_positives),
        F(negatives), F(exact_negatives), F(score_mean), F(score_variance), F(slope_square), F(violation_square),
        F(lowest_violation), F(fruitless_steps)});
#undef F
#define F(name) AIMFOR_FIELD(Rules, name)
    text += line("Rules", sizeof(Rules), {
        F(dual_rate), F(threshold_rate), F(sharpness), F(leak), F(log_loss), F(forget), F(forget_slope),
        F(progress), F(max_multiplier), F(longest_count), F(smallest_size), F(smallest_deviation), F(rounding), F(outlying),
        F(mean_rounding), F(nearest_to_ends), F(warmup), F(surrogate), F(tight), F(exact), F(learning),
        F(exclusive), F(look_every), F(count_every)});
#undef F
    return text;
}

// Names of the surrogates in the order of their numbers.
inline std::string surrogates() {
    const char* names[LAST_SURROGATE + 1];
    names[HINGE] = "hinge";
    names[LOG] = "log";
    names[SMOOTH_HINGE] = "smooth_hinge";
    names[RAMP] = "ramp";
    names[SIGMOID] = "sigmoid";
    std::string text;
    for (const char* name : names) text += (text.empty() ? "" : " ") + std::string(name);
    return text;
}

}  // namespace aimfor

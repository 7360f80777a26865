// Count and weigh in C++: what _reference.py, _state.py and _step.py do in torch, for CPU tensors of float32 or bfloat16
// scores.
//
// The batch is cut into tiles of TILE labels by ROWS rows. Positives are taken out of the negatives and handled apart:
// for them the same code runs on -f and -b. Sums stay in registers over a tile, and in double precision over tiles, so
// no array of all rows, labels and anchors ever exists.
//
// Plain C functions and structs, called through ctypes: tied to neither Python's nor torch's ABI. _native_library.py
// holds the same structs field by field, and compares them with layout.h when it loads the library.

#include <memory>
#include <optional>

#include "census.h"
#include "layout.h"
#include "state.h"

namespace aimfor {
namespace {

constexpr int64_t SMALL_WORK = 1 << 16;  // entries x anchors below which a second thread costs more than it does

constexpr int64_t LARGE_GRADIENT = 1 << 20;  // entries; a smaller one is still in the cache when it is read

Scratch& scratch_of_this_thread(int anchors) {
    static thread_local std::unique_ptr<Scratch> scratch(new Scratch);
    scratch->resize(anchors);
    return *scratch;
}

int threads_for(const Batch& batch, int64_t anchors) {
    return batch.rows * batch.labels * anchors < SMALL_WORK ? 1 : std::max(1, batch.threads);
}

// Cuts a batch into tasks: TILE labels by ROWS_PER_TASK rows.
struct Tasks {
    int64_t rows, labels, tiles, per_tile;

    explicit Tasks(const Batch& batch)
        : rows(batch.rows),
          labels(batch.labels),
          tiles((batch.labels + TILE - 1) / TILE),
          per_tile((batch.rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK) {}

    int64_t count() const { return tiles * per_tile; }
    int labels_of(int64_t tile) const { return static_cast<int>(std::min<int64_t>(TILE, labels - tile * TILE)); }

    // Calls back for each ROWS of a task.
    template <class Callback>
    void for_each_place(int64_t task, const Callback& callback) const {
        const int64_t tile = task / per_tile, begin = task % per_tile * ROWS_PER_TASK;
        const int64_t end = std::min(rows, begin + ROWS_PER_TASK);
        for (int64_t row = begin; row < end; row += ROWS) {
            callback(Place{row, static_cast<int>(std::min<int64_t>(ROWS, end - row)), tile * TILE, labels_of(tile)});
        }
    }
};

void store_gradient(const Tile& tile, const Place& place, float* gradient, int64_t stride, bool past_cache) {
    if (stride == 1) {
        std::copy_n(tile.negative.gradient, place.rows, gradient + place.first_row);
        return;
    }
    const bool aligned = reinterpret_cast<uintptr_t>(gradient) % sizeof(Floats) == 0 && stride % LANES == 0;
    past_cache = past_cache && aligned && place.labels == TILE;
    for (int row = 0; row < place.rows; ++row) {
        float* to = gradient + (place.first_row + row) * stride + place.first_label;
        const float* from = tile.negative.gradient + row * LANES;
        if (past_cache) {
            for (int label = 0; label < TILE; label += LANES, from += GROUP) store_past_cache(to + label, load(from));
        } else if (tile.by_label) {
            int label = 0;
            for (; label + LANES <= place.labels; label += LANES, from += GROUP) store(to + label, load(from));
            if (label < place.labels) store(to + label, load(from), place.labels - label);
        } else {
            for (int label = 0; label < place.labels; ++label) to[label] = tile.negative.gradient[label * ROWS + row];
        }
    }
    if (past_cache) finish_stores();
}

void store_gradient(const Tile& tile, const Place& place, uint16_t* gradient, int64_t stride) {
    for (int row = 0; row < place.rows; ++row) {
        uint16_t* to = gradient + (place.first_row + row) * stride + place.first_label;
        for (int label = 0; label < place.labels; ++label) to[label] = narrow(tile.negative.gradient[tile.at(row, label)]);
    }
}

// The labels of a tile, between the weighing of their costs and the step of their state.
class TileOfLabels {
  public:
    TileOfLabels(const Problem& problem, const Tasks& tasks, int64_t tile, Scratch& scratch)
        : problem(problem), columns(scratch.columns), first(tile * TILE), labels(tasks.labels_of(tile)) {
        for (int label = 0; label < labels; label += LANES) {
            if (label + LANES <= labels) full[label / LANES].emplace(problem, first + label);
            else rest.emplace(problem, first + label);
        }
        // Anchor by anchor, because the state of an anchor lies side by side.
        for (int anchor = 0; anchor < problem.anchors; ++anchor) {
            const Row row(problem, columns, anchor, first);
            for_each_group([&](auto& group, int label) { group->weigh(row, label); });
        }
        for_each_group([&](auto& group, int label) { group->share_costs(columns, label); });
    }

    double learn() {
        double value = 0;
        for_each_group([&](auto& group, int label) { group->start_learning(columns, label); });
        for (int anchor = 0; anchor < problem.anchors; ++anchor) {
            const Row row(problem, columns, anchor, first);
            for_each_group([&](auto& group, int label) { group->learn(row, label); });
        }
        for_each_group([&](auto& group, int) { value += group->value(); });
        return value;
    }

  private:
    const Problem& problem;
    Columns& columns;
    const int64_t first;
    const int labels;
    std::optional<Group<true>> full[TILE / LANES];
    std::optional<Group<false>> rest;

    template <class Callback>
    void for_each_group(const Callback& callback) {
        int label = 0;
        for (; label + LANES <= labels; label += LANES) callback(full[label / LANES], label);
        if (label < labels) callback(rest, label);
    }
};

}  // namespace
}  // namespace aimfor

using namespace aimfor;

extern "C" {

// What the sources were when this was compiled; see setup.py.
#ifndef AIMFOR_SOURCES
#define AIMFOR_SOURCES ""
#endif
const char* aimfor_sources(void) {
    return AIMFOR_SOURCES;
}

// The structs and the surrogates as this library knows them; see layout.h.
const char* aimfor_layout(void) {
    static const std::string text = layout();
    return text.c_str();
}

const char* aimfor_surrogates(void) {
    static const std::string text = surrogates();
    return text.c_str();
}

// The vectors that this library was compiled for.
const char* aimfor_vectors(void) {
#if defined(__AVX512DQ__)
    return "AVX-512";
#elif defined(__AVX2__)
    return "AVX2";
#else
    return "common vectors";
#endif
}

// 1 where this processor runs what this library was compiled for. The function itself must run anywhere.
#if defined(__x86_64__)
__attribute__((target("arch=x86-64")))
#endif
int32_t aimfor_runs_here(void) {
#if defined(__AVX2__)
    __builtin_cpu_init();
    bool has_all = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
#if defined(__AVX512DQ__)
    has_all = has_all && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
              && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq")
              && __builtin_cpu_supports("avx512vl");
#endif
    return has_all;
#else
    return 1;
#endif
}

int32_t aimfor_has_threads(void) {
#if defined(_OPENMP)
    return 1;
#else
    return 0;
#endif
}

// Checks every value of a batch, marks its positives and counts it: weight of negatives, weight of positives, weighted
// mean of scores, [3, L].
// Returns 0, or -1 where memory ran out.
int32_t aimfor_census(const Batch* batch, float* census, Fault* fault) try {
    *fault = {NONE, 0};
    std::vector<float> positives(batch->label_type == SPARSE ? batch->labels : 0);
    if (batch->label_type == SPARSE) mark_positions(*batch, positives.data(), fault);
    if (fault->kind) return 0;
    const CensusTasks tasks(*batch);
    const int threads = threads_for(*batch, 1);
    const int64_t width = tasks.width, length = CensusTasks::NUMBERS * width;
    const std::unique_ptr<double[]> parts(new double[tasks.count() * length]);
    std::vector<Fault> faults(tasks.count());
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t task = 0; task < tasks.count(); ++task) {
        faults[task] = tasks.run(task, parts.get() + task * length);
    }
    for (const Fault& one : faults) {
        if (!fault->kind) *fault = one;
    }
    const bool counted = batch->label_type == SPARSE && !batch->weights.data && !batch->mask.data;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t first = 0; first < batch->labels; first += width) {
        double* whole = parts.get() + first / width * length;
        for (int64_t rows = 1; rows < tasks.row_parts; ++rows) tasks.add(whole, whole + rows * tasks.label_parts * length);
        tasks.finish(whole, first, counted ? positives.data() : nullptr, census);
    }
    return 0;
} catch (...) {
    return -1;
}

// State.observe_: counts the classes; a label that takes part for the first time starts its thresholds at its mean.
// Gives the share of positives of each label, 0.5 where one of its classes has not been seen.
void aimfor_observe(
    const State* state, const float* census, int64_t anchors, int64_t labels, const Rules* rules, float* priors
) {
    for (int64_t first = 0; first < labels; first += LANES) {
        const int used = static_cast<int>(std::min<int64_t>(LANES, labels - first));
        auto get = [&](const float* from) { return load(from + first, used); };
        auto set = [&](float* to, Floats value) { store(to + first, value, used); };
        const Floats negative = get(census), positive = get(census + labels), weight = negative + positive;
        Floats positives = get(state->class_weight), negatives = get(state->class_weight + labels);
        const Ints full = (positives + negatives > rules->longest_count * weight) & (weight > 0.0f);
        const Floats kept = chosen(full, all(0.5f), all(1.0f));
        positives = kept * positives + positive;
        negatives = kept * negatives + negative;
        set(state->class_weight, positives);
        set(state->class_weight + labels, negatives);
        const Ints taking_part = (positives > 0.0f) & (negatives > 0.0f), active = taking_part & (weight > 0.0f);
        set(priors, chosen(taking_part, inside(positives / (positives + negatives), *rules), all(0.5f)));

        const Floats mean = get(census + 2 * labels), before = get(state->score_mean);
        const Floats farthest = reach(get(state->score_variance), before, *rules);
        const Floats held = larger(smaller(mean, before + farthest), before - farthest);
        Floats steps = {};
        for (int lane = 0; lane < used; ++lane) steps[lane] = static_cast<float>(state->steps[first + lane]);
        set(state->score_mean, moved(before, held, where(active, larger(1.0f / (steps + 1.0f), all(rules->forget)))));
        const Ints starting = active & (steps == 0.0f);
        for (int64_t anchor = 0; bits(starting) && anchor < anchors; ++anchor) {
            float* thresholds = state->thresholds + anchor * labels;
            set(thresholds, chosen(starting, mean, get(thresholds)));
        }
    }
}

// The pass over a batch that has been through the census: gradient of the scores and, where sums_out is null, value and
// step of the state; else the sums [6, K, L], squares [L] and cost of log-loss [L] alone. Returns 0, or -1 where memory
// ran out.
int32_t aimfor_step(
    const Batch* batch, const float* census, int64_t anchor_count, const Table* table, const State* state,
    const Rules* rules, void* gradient, float* value, float* sums_out, float* squares_out, float* log_loss_out
) try {
    const Loader load_tile(*batch);
    const int anchors = static_cast<int>(anchor_count);
    const Problem problem{*batch, census, anchors, *table, *state, *rules};
    const Tasks tasks(*batch);
    const int threads = threads_for(*batch, anchors);
    std::vector<double> values(tasks.tiles, 0.0);
    const bool past_cache = batch->rows * batch->labels >= LARGE_GRADIENT;
    const Blend blend = {rules->log_loss > 0.0f, rules->exclusive != 0};

    auto pass = [&](const Place& place, Scratch& scratch) {
        load_tile(place, scratch.tile);
        Pass(scratch, place.labels, anchors, rules->leak, blend)(place.rows, Ahead{problem, place});
        if (batch->score_type == FLOAT32) {
            store_gradient(scratch.tile, place, static_cast<float*>(gradient), batch->labels, past_cache);
        } else {
            store_gradient(scratch.tile, place, static_cast<uint16_t*>(gradient), batch->labels);
        }
    };
    auto finish = [&](int64_t tile, TileOfLabels& labels, const Columns& columns) {
        if (!sums_out) {
            values[tile] = labels.learn();
            return;
        }
        for (int label = 0; label < tasks.labels_of(tile); ++label) {
            const int64_t at = tile * TILE + label;
            for (int64_t row = 0; row < SUMS * anchor_count; ++row) {
                sums_out[row * batch->labels + at] = columns.sums[row * TILE + label];
            }
            squares_out[at] = columns.squares()[label];
            if (blend.has_log_loss) log_loss_out[at] = columns.log_cost[label] * columns.log_loss()[label];
        }
    };

    // The sums of ROWS rows stay in float; of more they are added up in double precision.
    const int64_t length = Columns::sums_of_a_tile(anchor_count);
    auto add_up = [&](int64_t task, Scratch& scratch, double* part) {
        tasks.for_each_place(task, [&](const Place& place) {
            pass(place, scratch);
            scratch.columns.add_to(part, place.labels);
        });
    };
    if (tasks.per_tile == 1) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
        for (int64_t tile = 0; tile < tasks.tiles; ++tile) {
            Scratch& scratch = scratch_of_this_thread(anchors);
            TileOfLabels labels(problem, tasks, tile, scratch);
            if (batch->rows <= ROWS) {
                tasks.for_each_place(tile, [&](const Place& place) { pass(place, scratch); });
            } else {
                scratch.totals.assign(length, 0.0);
                add_up(tile, scratch, scratch.totals.data());
                std::copy_n(scratch.totals.begin(), length, scratch.columns.sums.begin());
            }
            finish(tile, labels, scratch.columns);
        }
    } else {
        // Many rows: their tasks run side by side, and are added up in their order before the step of the state.
        std::vector<double> parts(tasks.count() * length, 0.0);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
        for (int64_t task = 0; task < tasks.count(); ++task) {
            Scratch& scratch = scratch_of_this_thread(anchors);
            TileOfLabels labels(problem, tasks, task / tasks.per_tile, scratch);
            add_up(task, scratch, parts.data() + task * length);
        }
        Scratch& scratch = scratch_of_this_thread(anchors);
        for (int64_t tile = 0; tile < tasks.tiles; ++tile) {
            TileOfLabels labels(problem, tasks, tile, scratch);
            double* whole = parts.data() + tile * tasks.per_tile * length;
            for (int64_t task = 1; task < tasks.per_tile; ++task) {
                for (int64_t index = 0; index < length; ++index) whole[index] += whole[task * length + index];
            }
            std::copy_n(whole, length, scratch.columns.sums.begin());
            finish(tile, labels, scratch.columns);
        }
    }
    double together = 0;
    for (double one : values) together += one;
    *value = static_cast<float>(together);
    return 0;
} catch (...) {
    return -1;
}

// Value and step of the state from what aimfor_step gave on several ranks, added up: sums [6, K, L], squares [L] and,
// where there is log-loss, its cost [L]. The census is that of all ranks too. Returns 0, or -1 where memory ran out.
int32_t aimfor_learn(
    const Batch* batch, const float* census, int64_t anchor_count, const Table* table, const State* state,
    const Rules* rules, const float* sums, const float* squares, const float* log_loss, float* value
) try {
    const Problem problem{*batch, census, static_cast<int>(anchor_count), *table, *state, *rules};
    const Tasks tasks(*batch);
    Scratch& scratch = scratch_of_this_thread(problem.anchors);
    Columns& columns = scratch.columns;
    double together = 0;
    for (int64_t tile = 0; tile < tasks.tiles; ++tile) {
        TileOfLabels labels(problem, tasks, tile, scratch);
        const int64_t first = tile * TILE;
        const int used = tasks.labels_of(tile);
        for (int64_t row = 0; row < SUMS * anchor_count; ++row) {
            std::copy_n(sums + row * batch->labels + first, used, columns.sums.data() + row * TILE);
        }
        std::copy_n(squares + first, used, columns.squares());
        for (int label = 0; log_loss && label < used; ++label) {
            const float cost = columns.log_cost[label];
            columns.log_loss()[label] = cost > 0.0f ? log_loss[first + label] / cost : 0.0f;
        }
        together += labels.learn();
    }
    *value = static_cast<float>(together);
    return 0;
} catch (...) {
    return -1;
}

}  // extern "C"

// Walks rows through the trees of a forest: the scores of `numpy_scores` in _walk.py, where the layout is explained.
//
// A block of rows is copied once, widened to double, so that all trees read it from the cache. The rows of a group take
// their steps side by side: the next node of one row is read while that of another is awaited.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

struct Node {
    double threshold;
    uint32_t feature_and_decision;
    int32_t child;
};
static_assert(sizeof(Node) == 16, "the layout of NODE in _walk.py");

constexpr uint32_t MISSING_LEFT = 1, ZERO_IS_MISSING = 2, CATEGORICAL = 4;
constexpr int GROUP = 16, BLOCK = 64;
constexpr int STEPS_BETWEEN_CHECKS = 4;
const double TINY = 1e-35f;

}  // namespace

extern "C" {

// A forest, as `Walk` in _walk.py.
struct Forest {
    const Node* nodes;
    const double* value;
    const int64_t* tree_starts;
    const int32_t* depths;
    const uint8_t* by_number;
    const int64_t* set_starts;
    const uint8_t* set_bytes;
    int64_t num_trees;
    int64_t num_features;
};

// Rows: a pointer to float or double, and how many entries apart rows and columns are.
struct Rows {
    const void* first;
    int64_t num_rows;
    int64_t row_stride;
    int64_t column_stride;
    int32_t is_double;
};

}  // extern "C"

namespace {

template <typename Number>
void copy_rows(const Rows& rows, int64_t start, int count, int64_t num_features, double* block) {
    const Number* first = static_cast<const Number*>(rows.first) + start * rows.row_stride;
    for (int row = 0; row < count; ++row) {
        const Number* from = first + row * rows.row_stride;
        double* to = block + row * num_features;
        for (int64_t column = 0; column < num_features; ++column) {
            const double number = from[column * rows.column_stride];
            to[column] = std::fabs(number) <= TINY ? 0.0 : number;
        }
    }
}

inline bool in_set(const Forest& forest, int32_t node, double number) {
    const int64_t start = forest.set_starts[node], end = forest.set_starts[node + 1];
    // Written so that NaN is in no set.
    if (!(number > -1.0 && number < 8.0 * static_cast<double>(end - start))) return false;
    const int64_t category = static_cast<int64_t>(number);
    return (forest.set_bytes[start + (category >> 3)] >> (category & 7)) & 1;
}

template <bool BY_NUMBER>
inline int32_t next(const Forest& forest, int32_t place, const double* row) {
    const Node& node = forest.nodes[place];
    const double number = row[node.feature_and_decision >> 8];
    const uint32_t decision = node.feature_and_decision;
    bool left = (number <= node.threshold) | ((number != number) & (decision & MISSING_LEFT));
    if (!BY_NUMBER) {
        if (decision & CATEGORICAL) {
            left = in_set(forest, place, number);
        } else if ((decision & ZERO_IS_MISSING) && number == 0.0) {
            left = decision & MISSING_LEFT;
        }
    }
    return node.child + !left;
}

template <bool BY_NUMBER>
void add_tree(const Forest& forest, int64_t tree, const double* block, int count, double* scores) {
    const int32_t start = static_cast<int32_t>(forest.tree_starts[tree]), depth = forest.depths[tree];
    const int64_t width = forest.num_features;
    int row = 0;
    for (; row + GROUP <= count; row += GROUP) {
        int32_t places[GROUP];
        for (int lane = 0; lane < GROUP; ++lane) places[lane] = start;
        const double* rows = block + row * width;
        for (int32_t step = 0; step < depth;) {
            const int32_t stop = step + STEPS_BETWEEN_CHECKS < depth ? step + STEPS_BETWEEN_CHECKS : depth;
            bool moved = false;
            for (; step < stop; ++step) {
                for (int lane = 0; lane < GROUP; ++lane) {
                    places[lane] = next<BY_NUMBER>(forest, places[lane], rows + lane * width);
                }
            }
            // A leaf leads to itself, so a group whose rows are all at leaves is done.
            for (int lane = 0; lane < GROUP; ++lane) moved |= forest.nodes[places[lane]].child != places[lane];
            if (!moved) break;
        }
        for (int lane = 0; lane < GROUP; ++lane) scores[row + lane] += forest.value[places[lane]];
    }
    for (; row < count; ++row) {
        int32_t place = start;
        while (forest.nodes[place].child != place) place = next<BY_NUMBER>(forest, place, block + row * width);
        scores[row] += forest.value[place];
    }
}

}  // namespace

extern "C" {

#ifndef AIMFOR_SOURCES
#define AIMFOR_SOURCES ""
#endif
// What the sources were when this was compiled; see setup.py.
const char* aimfor_forest_sources(void) { return AIMFOR_SOURCES; }

// Writes the score of each row to `scores`; returns 1 where there is no memory for a block of rows.
int32_t aimfor_forest_scores(const Forest* forest, const Rows* rows, double* scores) {
    std::vector<double> block;
    try {
        block.resize(static_cast<size_t>(BLOCK) * forest->num_features);
    } catch (...) {
        return 1;
    }
    for (int64_t start = 0; start < rows->num_rows; start += BLOCK) {
        const int count = static_cast<int>(rows->num_rows - start < BLOCK ? rows->num_rows - start : BLOCK);
        if (rows->is_double) {
            copy_rows<double>(*rows, start, count, forest->num_features, block.data());
        } else {
            copy_rows<float>(*rows, start, count, forest->num_features, block.data());
        }
        double* out = scores + start;
        for (int row = 0; row < count; ++row) out[row] = 0.0;
        for (int64_t tree = 0; tree < forest->num_trees; ++tree) {
            if (forest->by_number[tree]) {
                add_tree<true>(*forest, tree, block.data(), count, out);
            } else {
                add_tree<false>(*forest, tree, block.data(), count, out);
            }
        }
    }
    return 0;
}

}  // extern "C"

// The trees of phrases: how many numbers each node gives to which child, and the tables of it.
#include <scape/kernels/mask_code_phrases.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <mutex>
#include <string>

namespace scape::kernels::detail {

namespace {

using Worth = std::int64_t;  // in 2^-phrase_worth_bits bit
inline constexpr Worth one_bit = Worth{1} << phrase_worth_bits;

/// What a node with K numbers does, which depends on K alone.
class PhraseTree {
   public:
    PhraseTree(Worth selected, Worth skipped)
        : surplus_(phrase_count + 1, 0), choice_(phrase_count + 1, 0) {
        most_raw_ = static_cast<int>((selected - 1) / one_bit);
        for (Index count = 2; count <= phrase_count; ++count) plan(count, selected, skipped);
    }

    /// Least worth of a phrase from the root on, less its raw bits: must pay for its number.
    Worth surplus() const { return surplus_[phrase_count]; }

    /// > 0: so many numbers for rows that go on with a selected element, the rest for a skip.
    /// < 0: one number and -choice raw bits for a selected element at 2^-choice places, the rest
    /// for a skip of them all. 0: a number is left over. count >= 2.
    int choice(Index count) const { return choice_[count]; }

   private:
    void plan(Index count, Worth selected, Worth skipped) {
        surplus_[count] = surplus_[count - 1];
        const auto consider = [&](Worth surplus, Index choice) {
            if (surplus <= surplus_[count]) return;
            surplus_[count] = surplus;
            choice_[count] = static_cast<int>(choice);
        };
        // More numbers after a selected element raise what comes after it, and lower the rest.
        Index low = 1;
        Index high = count - 1;
        const auto after_selected = [&](Index c) { return surplus_[c] + selected; };
        const auto after_skip = [&](Index c) { return surplus_[count - c] + skipped; };
        while (low < high) {
            const Index middle = (low + high) / 2;
            if (after_selected(middle) >= after_skip(middle)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        for (Index c = std::max<Index>(1, low - 1); c <= low; ++c) {
            consider(std::min(after_selected(c), after_skip(c)), c);
        }
        for (int b = 1; b <= most_raw_; ++b) {
            consider(std::min(selected - b * one_bit, surplus_[count - 1] + (skipped << b)), -b);
        }
    }

    int most_raw_ = 0;
    std::vector<Worth> surplus_;
    std::vector<int> choice_;
};

/// The encoder's steps, and the decoder's phrases, of a tree.
class TableOfTree {
   public:
    TableOfTree(const PhraseTree& tree, PhraseTable& table)
        : tree_(tree), table_(table), node_(phrase_count + 1, -1) {
        table_.phrases.resize(phrase_count);
        add_phrases(phrase_count, 0, {}, 0, 0);
        collect_nodes(phrase_count);
        link_nodes();
        table_.view.root_span = nodes_[0].span;
        table_.view.phrases = table_.phrases.data();
        table_.view.steps = table_.steps.data();
    }

   private:
    struct Node {
        std::uint32_t first = 0;
        std::uint32_t span = 0;
        std::vector<PhraseStep> steps;  // `node` is the count of numbers of the next one
    };

    void put(Index number, Phrase phrase, int full, int selected, Index length, int raw_bits) {
        phrase.lanes[6] = static_cast<std::uint16_t>(length);
        phrase.lanes[7] = static_cast<std::uint16_t>(full | selected << 4 | raw_bits << 8);
        table_.phrases[number] = phrase;
    }

    /// Of the node that owns [number, number + count), after a row of `length` elements of which
    /// `full` are selected, at the places in `row`.
    void add_phrases(Index count, Index number, Phrase row, int full, Index length) {
        while (count > 1) {
            const int choice = tree_.choice(count);
            --count;
            if (choice == 0) continue;  // the number left over keeps the empty phrase
            if (choice > 1) {
                Phrase longer = row;
                longer.lanes[full] = static_cast<std::uint16_t>(length);
                add_phrases(choice, number, longer, full + 1, length + 1);
                count -= choice - 1;
            } else {
                put(number, row, full, full + 1, length + 1, choice < 0 ? -choice : 0);
            }
            number += std::max(choice, 1);
            length += choice < 0 ? Index{1} << -choice : 1;
        }
        put(number, row, full, full, length, 0);
    }

    /// The steps of the node with `count` numbers and, before them, those of the root.
    void collect_nodes(Index count) {
        if (node_[count] >= 0) return;
        node_[count] = static_cast<int>(nodes_.size());
        std::vector<PhraseStep> steps;
        std::uint16_t number = 0;
        Index left = count;
        while (left > 1) {
            const int choice = tree_.choice(left);
            if (choice == 0) {
                --left;
                continue;
            }
            const int bits = choice < 0 ? -choice : 0;
            const int after = std::max(choice, 1);
            const auto next = static_cast<std::uint32_t>(after > 1 ? after : phrase_count);
            for (int raw = 0; raw < 1 << bits; ++raw) {
                steps.push_back({next, 0, number, static_cast<std::uint16_t>(raw),
                                 static_cast<unsigned char>(bits), after == 1});
            }
            number = static_cast<std::uint16_t>(number + after);
            left -= after;
        }
        const auto span = static_cast<std::uint32_t>(steps.size());
        steps.push_back({static_cast<std::uint32_t>(phrase_count), 0, number, 0, 0, 1});
        nodes_.push_back({0, span, steps});
        for (const PhraseStep& step : steps) collect_nodes(step.node);
    }

    void link_nodes() {
        std::uint32_t first = 0;
        for (Node& node : nodes_) {
            node.first = first;
            first += node.span + 1;
        }
        for (const Node& node : nodes_) {
            for (PhraseStep step : node.steps) {
                const Node& next = nodes_[node_[step.node]];
                step.node = next.first;
                step.span = static_cast<std::uint16_t>(next.span);
                table_.steps.push_back(step);
            }
        }
    }

    const PhraseTree& tree_;
    PhraseTable& table_;
    std::vector<int> node_;  // of a count of numbers
    std::vector<Node> nodes_;
};

/// How far a tree can be fitted to its p goes up and down by 2 % with p, for raw bits are whole. So
/// each model takes the p near its own, in 64ths of an octave, whose codes are the shortest at the
/// densities that the model serves (the largest over both ends and the middle; by search).
constexpr signed char nudges[phrase_models] = {
    -10, 1,  4, -4, -12, 3,  -5, -6, 13, 5,  0,  -5, -6, 3,   -5, 15, 7,  -1, 0,  -7, -7, 1,   -3,
    14,  6,  6, -1, -9,  -1, 0,  -1, 13, 5,  -3, -1, 0,  7,   0,  -5, 13, 5,  -3, -2, -2, 7,   0,
    -7,  12, 4, -3, -3,  -2, 7,  0,  -8, 12, 4,  -3, -5, -13, 5,  -1, -9, 11, 8,  0,  -7, -15, 3};

std::unique_ptr<const PhraseTable> make_table(int model) {
    auto table = std::make_unique<PhraseTable>();
    const double bits = (20 + model) / 8. + nudges[model] / 64.;
    int low = 1024;  // of L, times 1024
    int high = 1100;
    const auto worth = [&](int factor) {
        const double unit = static_cast<double>(one_bit) * factor / 1024;
        table->view.selected = std::llrint(bits * unit);
        table->view.skipped = std::llrint(-std::log2(1 - std::exp2(-bits)) * unit);
        return PhraseTree(table->view.selected, table->view.skipped);
    };
    while (low < high) {
        const int middle = (low + high) / 2;
        if (worth(middle).surplus() >= phrase_bits * one_bit) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    TableOfTree(worth(high), *table);
    return table;
}

struct Tables {
    std::mutex mutex;
    std::array<std::unique_ptr<const PhraseTable>, phrase_models> made;
    std::array<PhraseView, phrase_models> views;  // of these
};

Tables& tables() {
    static Tables all;
    return all;
}

/// Copies in the memory of a device; freed before Kokkos is.
struct DeviceTables {
    Vec<PhraseView> views;
    std::array<Vec<Phrase>, phrase_models> phrases;
    std::array<Vec<PhraseStep>, phrase_models> steps;
};

DeviceTables& device_tables() {
    static DeviceTables all;
    static const bool hooked = [] {
        Kokkos::push_finalize_hook([] { all = {}; });
        return true;
    }();
    static_cast<void>(hooked);
    return all;
}

template <class T>
void copy_to_device(const std::string& label, const T* host, std::size_t count, Vec<T>& device) {
    device = Vec<T>(Kokkos::view_alloc(label, Kokkos::WithoutInitializing), count);
    Kokkos::deep_copy(device, HostSpan<const T>(host, count));
}

}  // namespace

const PhraseTable& phrase_table(int model) {
    Tables& all = tables();
    const std::lock_guard lock(all.mutex);
    if (all.made[model] == nullptr) {
        all.made[model] = make_table(model);
        all.views[model] = all.made[model]->view;
    }
    return *all.made[model];
}

const PhraseView* phrase_views() {
    Tables& all = tables();
    const std::lock_guard lock(all.mutex);
    if constexpr (exec_is_host) return all.views.data();
    DeviceTables& device = device_tables();
    bool changed = device.views.size() == 0;
    std::array<PhraseView, phrase_models> views;
    for (int m = 0; m < phrase_models; ++m) {
        if (all.made[m] == nullptr) continue;
        const PhraseTable& table = *all.made[m];
        if (device.phrases[m].size() == 0) {
            copy_to_device("scape::kernels::phrases", table.phrases.data(), table.phrases.size(),
                           device.phrases[m]);
            copy_to_device("scape::kernels::phrase_steps", table.steps.data(), table.steps.size(),
                           device.steps[m]);
            changed = true;
        }
        views[m] = table.view;
        views[m].phrases = device.phrases[m].data();
        views[m].steps = device.steps[m].data();
    }
    if (changed) {
        copy_to_device("scape::kernels::phrase_views", views.data(), views.size(), device.views);
    }
    return device.views.data();
}

}  // namespace scape::kernels::detail

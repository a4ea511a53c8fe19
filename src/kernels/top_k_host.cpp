// Top-k on a host. A thread takes a segment at a time:
//
//     1  bracket     from a sample: two keys that the k-th largest key lies between, very likely
//     2  split       the one pass over x: a bit for every element above the bracket, a bit for
//                    every element in it, and the keys of the latter
//     3  threshold   the k-th largest key, among those keys
//     4  join        bits above the bracket, and those in it from the threshold on -> positions
//
// Where the sample misled, or the bracket holds more keys than there is room for (many equal
// values), kth_key over x finds the threshold, which becomes the bracket of 2.
#include "kth_key.hpp"

#include <scape/kernels/loops.hpp>
#include <scape/kernels/top_k_detail.hpp>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace scape::kernels::detail {

namespace {

inline constexpr Index small = 4096;     // elements of a segment that needs no sample
inline constexpr Index run = 8;          // neighbours that are sampled together
inline constexpr Index cached = 100000;  // elements of two segments at most that stay in a cache
inline constexpr Index page = 1024;      // elements; the processor prefetches within one
inline constexpr Index alignment = 64;

/// What a thread needs for segments of up to n elements: about n/2 bytes.
struct Work {
    Word* above;    // (ceil(n/64)): a bit for each element above the bracket
    Word* between;  // (ceil(n/64)): in the bracket
    Key* keys;      // (room): of the elements in the bracket; at first, of the sample
    Index room;
    KthKeyWork kth;

    static Index room_for(Index n) { return n / 16 + small; }
    static Index word_count(Index n) { return round_up(n, word_bits) / word_bits; }
    static Index bytes(Index n) {
        const Index key_count = room_for(n) + word_bits + KthKeyWork::size;
        return round_up(2 * word_count(n) * Index{sizeof(Word)} + key_count * Index{sizeof(Key)},
                        alignment);
    }
    Work(unsigned char* memory, Index n)
        : above(reinterpret_cast<Word*>(memory)),
          between(above + word_count(n)),
          keys(reinterpret_cast<Key*>(between + word_count(n))),
          room(room_for(n)),
          kth(keys + room + word_bits) {}
};

/// A segment, and where its positions go.
struct Task {
    const float* x;
    Index n;
    Index k;
    const float* next;  // x of the thread's next segment
    Position* out;
};

/// Step 1. The k-th largest key has rank p m in a sample of m, give or take sqrt(m p (1-p)); the
/// bracket is `widths` of that wide on each side.
Bracket bracket(const Task& task, double widths, const Work& work) {
    Bracket in;
    if (task.n <= small) return in;
    const Index runs = std::clamp<Index>(task.n / 512, 128, 1024);
    const Index m = runs * run;
    const double stride = static_cast<double>(task.n - run) / static_cast<double>(runs);
    Key* sample = work.keys;
    std::uint32_t random = 1;
    for (Index j = 0; j < runs; ++j) {  // one run in each stride, so that no period can mislead
        random = random * 1664525u + 1013904223u;
        const float* from =
            task.x + static_cast<Index>((static_cast<double>(j) + random * 0x1p-32) * stride);
        for (Index l = 0; l < run; ++l) sample[j * run + l] = key_of(from[l]);
    }
    const double p = static_cast<double>(task.k) / static_cast<double>(task.n);
    const double rank = p * static_cast<double>(m);
    const double spread = widths * std::sqrt(rank * (1 - p)) + 2;
    const Index low = static_cast<Index>(rank + spread);
    const Index high = static_cast<Index>(rank - spread);
    Index count = m;
    if (low <= m) {
        const RankedKey key = kth_key(sample, m, low, work.kth);
        in.low = key.key;
        count = gather(sample, m, in, sample);
        // Many elements of one value (0, as a rule) are worth a bracket of their own.
        if (key.equal > m / 64 && key.above >= high) ++in.low;
    }
    if (high >= 1) in.high = kth_key(sample, count, high, work.kth).key + 1;
    if (in.high <= in.low) in.low = in.high - 1;
    return in;
}

struct Split {
    bool fits = true;
    Index above = 0;
    Index between = 0;
    bool holds(Index k) const { return fits && above < k && k <= above + between; }
};

inline void prefetch(const float* x) {
    for (Index line = 0; line < 4; ++line) __builtin_prefetch(x + 16 * line, 0, 2);
}

/// Step 2, with keys, for which there may be too little room; or without, for a bracket of one key.
template <bool with_keys>
Split split(const Task& task, const Bracket& in, const Work& work) {
    // What comes next is on its way while this is worked on: a piece of x, or a short segment.
    const float* ahead = task.n <= cached ? task.next : task.x + page;
    Split s;
    const Index whole = task.n / word_bits * word_bits;
    const auto keep = [&](SplitWord word, Index w) {
        work.above[w] = word.above;
        work.between[w] = word.between;
        s.above += std::popcount(word.above);
        s.between += std::popcount(word.between);
    };
    for (Index i = 0; i < whole; i += word_bits) {
        s.fits = !with_keys || s.between + word_bits <= work.room;
        if (!s.fits) return s;
        prefetch(ahead + i);
        keep(split_word<with_keys>(task.x + i, in.low, in.high, work.keys + s.between),
             i / word_bits);
    }
    if (whole < task.n) {
        float last[word_bits] = {};
        const Index rest = task.n - whole;
        std::copy(task.x + whole, task.x + task.n, last);
        const Word above = part_at_least(last, rest, in.high);
        const Word between = part_at_least(last, rest, in.low) & ~above;
        s.fits = !with_keys || s.between + word_bits <= work.room;
        if (!s.fits) return s;
        if (with_keys) append_keys(work.keys + s.between, between, last);
        keep({above, between}, whole / word_bits);
    }
    return s;
}

/// Steps 3 and 4. ties: how many elements are to be taken from the bracket.
void join(const Task& task, Index between, Index ties, const Work& work) {
    const RankedKey threshold = kth_key(work.keys, between, ties, work.kth);
    ties -= threshold.above;
    Key limit = threshold.key;
    if (ties < threshold.equal) {  // raise those that are taken above the others
        ++limit;
        for (Index i = 0; ties > 0; ++i) {
            if (work.keys[i] != threshold.key) continue;
            ++work.keys[i];
            --ties;
        }
    }
    const Key* keys = work.keys;
    Position* out = task.out;
    for (Index w = 0; w * word_bits < task.n; ++w) {
        const Word kept = keep_at_least(work.between[w], keys, limit);
        keys += std::popcount(work.between[w]);
        out = append_within(out, task.out + task.k, work.above[w] | kept,
                            static_cast<Position>(w * word_bits));
    }
}

/// Step 4 for a bracket of one key.
void join_ties(const Task& task, Index ties, const Work& work) {
    Position* out = task.out;
    for (Index w = 0; w * word_bits < task.n; ++w) {
        Word equal = work.between[w];
        if (std::popcount(equal) <= ties) {
            ties -= std::popcount(equal);
        } else {
            Word others = equal;
            for (; ties > 0; --ties) others &= others - 1;
            equal &= ~others;
        }
        out = append_within(out, task.out + task.k, work.above[w] | equal,
                            static_cast<Position>(w * word_bits));
    }
}

Split split(const Task& task, const Bracket& in, const Work& work) {
    return in.width() == 1 ? split<false>(task, in, work) : split<true>(task, in, work);
}

void select(const Task& task, const Work& work) {
    if (task.k == task.n) {
        for (Index i = 0; i < task.n; ++i) task.out[i] = static_cast<Position>(i);
        return;
    }
    Bracket in = bracket(task, 3, work);
    Split s = split(task, in, work);
    if (s.fits && s.above + s.between < task.k && in.low > 0) {  // so it may be the value below
        in = {in.low - 1, in.low};
        s = split(task, in, work);
    }
    if (!s.holds(task.k) && s.fits) {
        in = bracket(task, 6, work);
        s = split(task, in, work);
    }
    if (!s.holds(task.k)) {
        const Key key = kth_key(task.x, task.n, task.k, work.kth).key;
        in = {key, key + 1};
        s = split(task, in, work);
    }
    if (in.width() == 1) {
        join_ties(task, task.k - s.above, work);
    } else {
        join(task, s.between, task.k - s.above, work);
    }
}

}  // namespace

Index top_k_workspace_host(Index largest_segment, Index segments) {
    return std::min<Index>(Exec().concurrency(), segments) * Work::bytes(largest_segment);
}

void top_k_host(const Exec& exec, Span<const float> x, Span<const Segment> segments,
                Span<Position> positions, Span<unsigned char> workspace) {
    const Index count = static_cast<Index>(segments.extent(0));
    Index largest = 0;
    for (Index i = 0; i < count; ++i) largest = std::max(largest, segments[i].size);
    const Index bytes = Work::bytes(largest);
    const Index workers = std::min(count, static_cast<Index>(workspace.extent(0)) / bytes);
    if (count > 0 && workers == 0) {
        throw std::logic_error("top_k: the workspace has " + std::to_string(workspace.extent(0)) +
                               " bytes, a segment of " + std::to_string(largest) +
                               " elements asks for " + std::to_string(bytes));
    }
    Kokkos::parallel_for("scape::kernels::top_k", range(exec, workers), [=](Index w) {
        const Work work(workspace.data() + w * bytes, largest);
        for (Index i = w; i < count; i += workers) {
            const Segment s = segments[i];
            const Segment next = segments[std::min(i + workers, count - 1)];
            select({x.data() + s.begin, s.size, s.selected, x.data() + next.begin,
                    positions.data() + s.first},
                   work);
        }
    });
}

}  // namespace scape::kernels::detail

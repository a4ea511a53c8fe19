// Top-k on a device. Each segment is cut into pieces; a piece is a team's. No value returns to the
// host, and all counts are integers, so the result depends on no order.
//
//     clear    histograms of all segments
//     3 x      count    keys of a piece whose upper bits are those of the k-th largest, by their
//                       next 11, 10 and 10 bits: in scratch memory, then added to the segment's
//              choose   the bin that holds the k-th largest
//     tally    of a piece: keys above the k-th largest, and equal to it
//     write    positions of a piece, in order, behind those of the pieces before it
#include <scape/kernels/loops.hpp>
#include <scape/kernels/top_k_detail.hpp>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace scape::kernels::detail {

namespace {

using Policy = Kokkos::TeamPolicy<Exec>;
using Member = Policy::member_type;
using Key = std::uint32_t;
using Counts = std::uint64_t;  // above << 32 | equal

inline constexpr int team_threads = exec_is_host ? 1 : 256;
inline constexpr int most_teams = exec_is_host ? 8 : 1024;  // pieces of all segments, about
inline constexpr Index least_piece = exec_is_host ? 64 : 8192;
inline constexpr int bins = 2048;
// Neighbouring threads count in different copies: keys are alike, and so are their bins.
inline constexpr int copies = exec_is_host ? 1 : 4;
inline constexpr int rounds = 3;

/// What is known of the k-th largest key of a segment, and the rank among keys that agree with it.
struct Known {
    Key key;
    Key unused;
    Index rank;
};

/// Pieces of a segment, and the workspace of all.
struct Plan {
    Index pieces;
    Known* known;    // (segments)
    Counts* counts;  // (segments, pieces)
    Key* bin;        // (segments, bins)

    static Index pieces_for(Index segments) {
        return std::max<Index>(1, most_teams / std::max<Index>(1, segments));
    }
    static Index bytes(Index segments) {
        return segments * static_cast<Index>(sizeof(Known) + bins * sizeof(Key) +
                                             pieces_for(segments) * sizeof(Counts));
    }
    Plan(unsigned char* memory, Index segments) : pieces(pieces_for(segments)) {
        known = reinterpret_cast<Known*>(memory);
        counts = reinterpret_cast<Counts*>(known + segments);
        bin = reinterpret_cast<Key*>(counts + segments * pieces);
    }
};

KOKKOS_INLINE_FUNCTION Key key_at(const float* x) {
    Key bits;
    memcpy(&bits, x, sizeof bits);
    return bits & 0x7fffffffu;
}

/// A team's place: segment, and elements [begin, end) of it.
struct Piece {
    Segment segment;
    Index index;
    Index number;
    Index begin;
    Index end;

    KOKKOS_INLINE_FUNCTION Piece(const Member& team, const Segment* segments, Index pieces) {
        index = team.league_rank() / pieces;
        number = team.league_rank() % pieces;
        segment = segments[index];
        const Index even = (segment.size + pieces - 1) / pieces;
        const Index length = even > least_piece ? even : least_piece;
        begin = number * length < segment.size ? number * length : segment.size;
        end = begin + length < segment.size ? begin + length : segment.size;
    }
    KOKKOS_INLINE_FUNCTION bool whole() const { return segment.selected == segment.size; }
};

struct Round {
    int shift;
    int bits;
    static Round number(int r) { return r == 0 ? Round{20, 11} : Round{r == 1 ? 10 : 0, 10}; }
};

struct Count {
    Plan plan;
    Round round;
    const float* x;
    const Segment* segments;

    KOKKOS_INLINE_FUNCTION void operator()(const Member& team) const {
        const Piece piece(team, segments, plan.pieces);
        if (piece.whole() || piece.begin == piece.end) return;
        Key* count = static_cast<Key*>(
            team.team_scratch(0).get_shmem_aligned(copies * bins * sizeof(Key), 16));
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, copies * bins),
                             [&](int b) { count[b] = 0; });
        team.team_barrier();
        const float* from = x + piece.segment.begin + piece.begin;
        const Key known = plan.known[piece.index].key;
        const Key upper = Key{0xffffffffu} << (round.shift + round.bits - 1) << 1;
        const Key mask = (Key{1} << round.bits) - 1;
        Key* mine = count + team.team_rank() % copies * bins;
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, piece.end - piece.begin), [&](Index i) {
            const Key key = key_at(from + i);
            if ((key & upper) != known) return;
            Kokkos::atomic_add(mine + (key >> round.shift & mask), Key{1});
        });
        team.team_barrier();
        Key* total = plan.bin + piece.index * bins;
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, bins), [&](int b) {
            Key sum = 0;
            for (int c = 0; c < copies; ++c) sum += count[c * bins + b];
            if (sum != 0) Kokkos::atomic_add(total + b, sum);
        });
    }
};

/// A team per segment: from the highest bin down, the first with which `rank` keys are reached.
struct Choose {
    Plan plan;
    Round round;
    const Segment* segments;

    KOKKOS_INLINE_FUNCTION void operator()(const Member& team) const {
        const Index s = team.league_rank();
        Key* count = plan.bin + s * bins;
        const Known before = plan.known[s];
        const Index rank = round.shift == 20 ? segments[s].selected : before.rank;
        team.team_barrier();
        Kokkos::parallel_scan(
            Kokkos::TeamThreadRange(team, bins), [&](int i, Counts& above, bool final) {
                const int b = bins - 1 - i;
                const Counts here = count[b];
                if (final && above < static_cast<Counts>(rank) &&
                    above + here >= static_cast<Counts>(rank)) {
                    plan.known[s].key = before.key | static_cast<Key>(b) << round.shift;
                    plan.known[s].rank = rank - static_cast<Index>(above);
                }
                above += here;
            });
        team.team_barrier();
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, bins), [&](int b) { count[b] = 0; });
    }
};

KOKKOS_INLINE_FUNCTION Counts count_of(Key key, Key threshold) {
    return key > threshold ? Counts{1} << 32 : key == threshold ? 1 : 0;
}

struct Tally {
    Plan plan;
    const float* x;
    const Segment* segments;

    KOKKOS_INLINE_FUNCTION void operator()(const Member& team) const {
        const Piece piece(team, segments, plan.pieces);
        const float* from = x + piece.segment.begin + piece.begin;
        const Key threshold = plan.known[piece.index].key;
        Counts sum = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamThreadRange(team, piece.end - piece.begin),
            [&](Index i, Counts& t) { t += count_of(key_at(from + i), threshold); }, sum);
        Kokkos::single(Kokkos::PerTeam(team),
                       [&]() { plan.counts[piece.index * plan.pieces + piece.number] = sum; });
    }
};

struct Write {
    Plan plan;
    const float* x;
    const Segment* segments;
    Position* positions;

    KOKKOS_INLINE_FUNCTION void operator()(const Member& team) const {
        const Piece piece(team, segments, plan.pieces);
        const Position first = static_cast<Position>(piece.begin);
        Position* out = positions + piece.segment.first;
        const Index n = piece.end - piece.begin;
        if (piece.whole()) {
            Kokkos::parallel_for(Kokkos::TeamThreadRange(team, n), [&](Index i) {
                out[piece.begin + i] = first + static_cast<Position>(i);
            });
            return;
        }
        const Counts* others = plan.counts + piece.index * plan.pieces;
        Counts before = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamThreadRange(team, piece.number),
            [&](Index p, Counts& t) { t += others[p]; }, before);
        const float* from = x + piece.segment.begin + piece.begin;
        const Key threshold = plan.known[piece.index].key;
        const Counts ties = static_cast<Counts>(plan.known[piece.index].rank);
        Kokkos::parallel_scan(Kokkos::TeamThreadRange(team, n),
                              [&](Index i, Counts& sum, bool final) {
                                  const Key key = key_at(from + i);
                                  if (final && key >= threshold) {
                                      const Counts at = before + sum;
                                      const Counts equal = at & 0xffffffffu;
                                      if (key > threshold || equal < ties) {
                                          out[(at >> 32) + (equal < ties ? equal : ties)] =
                                              first + static_cast<Position>(i);
                                      }
                                  }
                                  sum += count_of(key, threshold);
                              });
    }
};

}  // namespace

Index top_k_workspace_device(Index, Index segments) {
    return Plan::bytes(segments);
}

void top_k_device(const Exec& exec, Span<const float> x, Span<const Segment> segments,
                  Span<Position> positions, Span<unsigned char> workspace) {
    const Index count = static_cast<Index>(segments.extent(0));
    if (count == 0) return;
    if (static_cast<Index>(workspace.extent(0)) < Plan::bytes(count)) {
        throw std::logic_error("top_k: the workspace has " + std::to_string(workspace.extent(0)) +
                               " bytes, " + std::to_string(count) + " segments ask for " +
                               std::to_string(Plan::bytes(count)));
    }
    const Plan plan(workspace.data(), count);
    const Policy per_segment(exec, static_cast<int>(count), team_threads);
    const Policy per_piece(exec, static_cast<int>(count * plan.pieces), team_threads);
    Policy counting = per_piece;
    counting.set_scratch_size(0,
                              Kokkos::PerTeam(copies * bins * static_cast<int>(sizeof(Key)) + 64));
    Kokkos::parallel_for(
        "scape::kernels::top_k_clear", range(exec, count * bins), KOKKOS_LAMBDA(Index i) {
            plan.bin[i] = 0;
            if (i % bins == 0) plan.known[i / bins] = {0, 0, 0};
        });
    for (int r = 0; r < rounds; ++r) {
        const Round round = Round::number(r);
        Kokkos::parallel_for("scape::kernels::top_k_count", counting,
                             Count{plan, round, x.data(), segments.data()});
        Kokkos::parallel_for("scape::kernels::top_k_choose", per_segment,
                             Choose{plan, round, segments.data()});
    }
    Kokkos::parallel_for("scape::kernels::top_k_tally", per_piece,
                         Tally{plan, x.data(), segments.data()});
    Kokkos::parallel_for("scape::kernels::top_k_write", per_piece,
                         Write{plan, x.data(), segments.data(), positions.data()});
}

}  // namespace scape::kernels::detail

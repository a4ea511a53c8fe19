// The entropy code of a mask: pieces of all segments side by side.
#include "mask_code_entropy.hpp"

#include <scape/kernels/loops.hpp>
#include <scape/kernels/mask_code_detail.hpp>

#include <algorithm>

namespace scape::kernels::detail {

namespace {

using Policy = Kokkos::TeamPolicy<Exec>;
using Member = Policy::member_type;
using Counts = std::uint64_t;  // bytes of numbers << 32 | bytes of raw bits

inline constexpr int team_threads = exec_is_host ? 1 : 128;

/// A team per segment. As a piece lies where those before it end, each is first coded for its
/// length only.
struct Encode {
    const PhraseView* views;
    const Segment* segments;
    const Position* positions;
    unsigned char* coded;

    KOKKOS_INLINE_FUNCTION void operator()(const Member& team) const {
        const Segment s = segments[team.league_rank()];
        if (!has_code(s)) return;
        const PhraseView code = views[phrase_model(s.size, s.selected)];
        if (code.phrases == nullptr) return;
        unsigned char* const out = coded + s.code;
        PieceStart* const starts = reinterpret_cast<PieceStart*>(out);
        const Index pieces = piece_count(s.selected);
        const Index bytes = entropy_bytes(code, s.size, s.selected);
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, bytes / 8),
                             [&](Index w) { reinterpret_cast<std::uint64_t*>(out)[w] = 0; });
        team.team_barrier();
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, pieces - 1), [&](Index i) {
            const Piece p{s, pieces, i};
            const PieceBytes took =
                encode<false>(code, p, positions, {p.before(positions), 0, 0}, out, bytes);
            starts[i] = {0, static_cast<std::uint32_t>(took.words),
                         static_cast<std::uint32_t>(took.raws)};
        });
        team.team_barrier();
        const Counts header = (pieces - 1) * sizeof(PieceStart);
        Kokkos::parallel_scan(Kokkos::TeamThreadRange(team, pieces - 1),
                              [&](Index i, Counts& sum, bool final) {
                                  sum += Counts{starts[i].words} << 32 | starts[i].raws;
                                  if (!final) return;
                                  starts[i] = {Piece{s, pieces, i + 1}.before(positions),
                                               static_cast<std::uint32_t>(header + (sum >> 32)),
                                               static_cast<std::uint32_t>(sum)};
                              });
        team.team_barrier();
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, pieces), [&](Index i) {
            const Piece p{s, pieces, i};
            encode<true>(code, p, positions, p.start(starts), out, bytes);
        });
    }
};

struct Decode {
    const PhraseView* views;
    const Segment* segments;
    const unsigned char* coded;
    Position* positions;

    KOKKOS_INLINE_FUNCTION void operator()(const Member& team) const {
        const Segment s = segments[team.league_rank()];
        if (s.selected == s.size) {
            count_up(s, team.team_rank(), team.team_size(), positions);
        } else if (s.selected > 0) {
            const PhraseView code = views[phrase_model(s.size, s.selected)];
            const Index pieces = piece_count(s.selected);
            Kokkos::parallel_for(Kokkos::TeamThreadRange(team, pieces), [&](Index i) {
                piece_decoder(code, Piece{s, pieces, i}, coded, positions).finish();
            });
        }
    }
};

}  // namespace

Index entropy_code_bytes(Index n, Index k) {
    if (k == 0 || k == n) return 0;
    return entropy_bytes(phrase_table(phrase_model(n, k)).view, n, k);
}

void encode_entropy_device(const Exec& exec, Span<const Segment> segments,
                           Span<const Position> positions, Span<unsigned char> coded) {
    if (segments.extent(0) == 0) return;
    Kokkos::parallel_for("scape::kernels::encode_mask_entropy",
                         Policy(exec, static_cast<int>(segments.extent(0)), team_threads),
                         Encode{phrase_views(), segments.data(), positions.data(), coded.data()});
}

void decode_entropy_device(const Exec& exec, Span<const Segment> segments,
                           Span<const unsigned char> coded, Span<Position> positions) {
    if (segments.extent(0) == 0) return;
    Kokkos::parallel_for("scape::kernels::decode_mask_entropy",
                         Policy(exec, static_cast<int>(segments.extent(0)), team_threads),
                         Decode{phrase_views(), segments.data(), coded.data(), positions.data()});
}

}  // namespace scape::kernels::detail

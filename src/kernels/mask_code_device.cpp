// Codes of a mask on a device: a team per segment. Where an element's place in the code (or a
// code's position) depends on those before it, a scan over the team says where.
#include <scape/kernels/loops.hpp>
#include <scape/kernels/mask_code_detail.hpp>

namespace scape::kernels::detail {

namespace {

using Policy = Kokkos::TeamPolicy<Exec>;
using Member = Policy::member_type;
using Word = unsigned long long;  // what atomics know
using Counts = std::uint64_t;     // positions so far << 32 | the next position

inline constexpr int team_threads = exec_is_host ? 1 : 512;
inline constexpr Position skip = 255;  // in a code of gaps: that many elements, and no position

template <class F>
KOKKOS_INLINE_FUNCTION void each(const Member& team, Index n, const F& f) {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, n), f);
    team.team_barrier();
}

KOKKOS_INLINE_FUNCTION Index bytes_of(MaskCode code, const Segment& s) {
    const Index bytes = code == MaskCode::bitmap ? (s.size + 63) / 64 * 8
                        : code == MaskCode::gaps ? s.selected + s.size / 255
                                                 : 4 * s.selected;
    return (bytes + 7) / 8 * 8;
}

struct Encode {
    MaskCode code;
    const Segment* segments;
    const Position* positions;
    unsigned char* coded;

    KOKKOS_INLINE_FUNCTION void operator()(const Member& team) const {
        const Segment s = segments[team.league_rank()];
        if (s.selected == s.size) return;
        const Position* in = positions + s.first;
        unsigned char* out = coded + s.code;
        const Index bytes = bytes_of(code, s);
        if (code == MaskCode::bitmap) {
            bitmap(team, in, s.selected, reinterpret_cast<Word*>(out), bytes / 8);
        } else if (code == MaskCode::gaps) {
            gaps(team, in, s.selected, out, bytes);
        } else {
            Position* index = reinterpret_cast<Position*>(out);
            each(team, bytes / 4, [&](Index j) { index[j] = j < s.selected ? in[j] : 0; });
        }
    }

    KOKKOS_INLINE_FUNCTION static void bitmap(const Member& team, const Position* in, Index k,
                                              Word* out, Index words) {
        each(team, words, [&](Index w) { out[w] = 0; });
        each(team, k, [&](Index j) { Kokkos::atomic_or(out + in[j] / 64, Word{1} << in[j] % 64); });
    }
    KOKKOS_INLINE_FUNCTION static void gaps(const Member& team, const Position* in, Index k,
                                            unsigned char* out, Index bytes) {
        each(team, bytes, [&](Index b) { out[b] = static_cast<unsigned char>(skip); });
        Kokkos::parallel_scan(
            Kokkos::TeamThreadRange(team, k), [&](Index j, Counts& skips, bool final) {
                const Position gap = j == 0 ? in[0] : in[j] - in[j - 1] - 1;
                skips += gap / skip;
                if (final) {
                    out[static_cast<Counts>(j) + skips] = static_cast<unsigned char>(gap % skip);
                }
            });
    }
};

struct Decode {
    MaskCode code;
    const Segment* segments;
    const unsigned char* coded;
    Position* positions;

    KOKKOS_INLINE_FUNCTION void operator()(const Member& team) const {
        const Segment s = segments[team.league_rank()];
        const Position begin = static_cast<Position>(s.begin);
        const unsigned char* in = coded + s.code;
        Position* out = positions + s.first;
        if (s.selected == s.size) {
            each(team, s.size, [&](Index j) { out[j] = begin + static_cast<Position>(j); });
        } else if (code == MaskCode::bitmap) {
            bitmap(team, s, reinterpret_cast<const Word*>(in), begin, out);
        } else if (code == MaskCode::gaps) {
            gaps(team, s, in, begin, out);
        } else {
            const Position* index = reinterpret_cast<const Position*>(in);
            const Position last = static_cast<Position>(s.size - 1);
            each(team, s.selected,
                 [&](Index j) { out[j] = begin + (index[j] < last ? index[j] : last); });
        }
    }

    /// A code that was damaged and names too few: the rest is the last element.
    KOKKOS_INLINE_FUNCTION static void fill(const Segment& s, Index from, Position* out) {
        for (Index j = from; j < s.selected; ++j) {
            out[j] = static_cast<Position>(s.begin + s.size - 1);
        }
    }
    KOKKOS_INLINE_FUNCTION static void bitmap(const Member& team, const Segment& s, const Word* in,
                                              Position begin, Position* out) {
        const Index words = (s.size + 63) / 64;
        Kokkos::parallel_scan(Kokkos::TeamThreadRange(team, words + 1),
                              [&](Index w, Counts& count, bool final) {
                                  Word word = w < words ? in[w] : 0;
                                  const Index rest = s.size - w * 64;
                                  if (rest < 64) word &= rest > 0 ? (Word{1} << rest) - 1 : 0;
                                  for (Index b = 0; word != 0; ++b, word >>= 1) {
                                      if ((word & 1) == 0) continue;
                                      if (final && static_cast<Index>(count) < s.selected) {
                                          out[count] = begin + static_cast<Position>(w * 64 + b);
                                      }
                                      ++count;
                                  }
                                  if (final && w == words) fill(s, static_cast<Index>(count), out);
                              });
    }
    KOKKOS_INLINE_FUNCTION static void gaps(const Member& team, const Segment& s,
                                            const unsigned char* in, Position begin,
                                            Position* out) {
        const Index bytes = bytes_of(MaskCode::gaps, s);
        const Position last = static_cast<Position>(s.size - 1);
        // A damaged code this long may overflow the lower half of Counts, and leave holes.
        if (bytes >= Index{1} << 24) {
            each(team, s.selected, [&](Index j) { out[j] = begin + last; });
        }
        Kokkos::parallel_scan(Kokkos::TeamThreadRange(team, bytes + 1),
                              [&](Index b, Counts& sum, bool final) {
                                  const Index count = static_cast<Index>(sum >> 32);
                                  if (b == bytes) {
                                      if (final) fill(s, count, out);
                                      return;
                                  }
                                  if (in[b] == skip) {
                                      sum += skip;
                                      return;
                                  }
                                  const Position position = static_cast<Position>(sum) + in[b];
                                  if (final && count < s.selected) {
                                      out[count] = begin + (position < last ? position : last);
                                  }
                                  sum += (Counts{1} << 32) + in[b] + 1;
                              });
    }
};

}  // namespace

void encode_mask_device(const Exec& exec, MaskCode code, Span<const Segment> segments,
                        Span<const Position> positions, Span<unsigned char> coded) {
    if (segments.extent(0) == 0) return;
    if (code == MaskCode::entropy) return encode_entropy_device(exec, segments, positions, coded);
    Kokkos::parallel_for("scape::kernels::encode_mask",
                         Policy(exec, static_cast<int>(segments.extent(0)), team_threads),
                         Encode{code, segments.data(), positions.data(), coded.data()});
}

void decode_mask_device(const Exec& exec, MaskCode code, Span<const Segment> segments,
                        Span<const unsigned char> coded, Span<Position> positions) {
    if (segments.extent(0) == 0) return;
    if (code == MaskCode::entropy) return decode_entropy_device(exec, segments, coded, positions);
    Kokkos::parallel_for("scape::kernels::decode_mask",
                         Policy(exec, static_cast<int>(segments.extent(0)), team_threads),
                         Decode{code, segments.data(), coded.data(), positions.data()});
}

}  // namespace scape::kernels::detail

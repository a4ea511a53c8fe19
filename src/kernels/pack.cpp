// Values that travel as numbers, and the way to those in blocks.
#include "pack_detail.hpp"
#include "places.hpp"
#include "value_levels.hpp"

#include <algorithm>

namespace scape::kernels {

namespace {

using detail::Bf16;
using detail::Differences;
using detail::Elements;
using detail::with_place;

struct Fp32 {
    using Stored = float;
    KOKKOS_FORCEINLINE_FUNCTION static float encode(float x) { return x; }
    KOKKOS_FORCEINLINE_FUNCTION static float decode(float x) { return x; }
    KOKKOS_FORCEINLINE_FUNCTION static float rest(float, float) { return 0.f; }
};

/// Calls f(Fp32()) or f(Bf16()).
template <class F>
void with_number(const ValueCode& code, const F& f) {
    if (code.exact()) {
        f(Fp32());
    } else {
        f(Bf16());
    }
}

template <class T>
T* typed(Span<unsigned char> bytes) {
    return reinterpret_cast<T*>(bytes.data());
}
template <class T>
const T* typed(Span<const unsigned char> bytes) {
    return reinterpret_cast<const T*>(bytes.data());
}

/// How many values of an array a message of numbers carries; it may be padded.
template <class Code>
Index count(const Selected& selected, const Span<const float>& array,
            const Span<const unsigned char>& message) {
    const auto positions = static_cast<Index>(selected.positions.extent(0));
    if (positions > 0) return positions;
    const auto all = static_cast<Index>(message.extent(0) / sizeof(typename Code::Stored));
    return std::min(all, static_cast<Index>(array.extent(0)));
}

template <class Code, class Source>
struct PackNumbers {
    Source source;
    typename Code::Stored* message;
    KOKKOS_FORCEINLINE_FUNCTION void operator()(Index j) const {
        source.fetch(j + fetch_ahead);
        const float x = source.value(j);
        const auto stored = Code::encode(x);
        message[j] = stored;
        source.leave(j, Code::rest(x, Code::decode(stored)));
    }
};

inline constexpr Index summed = 256;  // values at a time, on a host

template <class Code, class Place>
struct SumNumbers {
    const typename Code::Stored* mine;
    const typename Code::Stored* others;  // (P-1, stride)
    Index stride;                         // values in one message, padding included
    int ranks, rank;
    float scale;
    Place place;
    float* out;
    Index n;

    KOKKOS_FORCEINLINE_FUNCTION const typename Code::Stored* message(int p) const {
        return p == rank ? mine : others + (p < rank ? p : p - 1) * stride;
    }
    KOKKOS_FORCEINLINE_FUNCTION void operator()(Index j) const {
        float sum = Code::decode(message(0)[j]);
        for (int p = 1; p < ranks; ++p) sum += Code::decode(message(p)[j]);
        place.store(out, j, scale * sum);
    }
    /// Message by message.
    void operator()(const ShortRow& row, Index chunk) const {
        const Index begin = chunk * summed, count = std::min(summed, n - begin);
        const SumNumbers self = *this;
        self.place.fetch(self.out, begin + count, begin + 2 * count);
        alignas(64) float sum[summed];
        for (int p = 0; p < self.ranks; ++p) {
            const auto* const values = self.message(p) + begin;
            if (p == 0) {
                row.each(count, [&](Index j) { sum[j] = Code::decode(values[j]); });
            } else {
                row.each(count, [&](Index j) { sum[j] += Code::decode(values[j]); });
            }
        }
        row.each(count,
                 [&](Index j) { self.place.store(self.out, begin + j, self.scale * sum[j]); });
    }
};

template <class Sum>
void sum_numbers(const Exec& exec, const Sum& sum) {
    if constexpr (exec_is_host) {
        for_each_short_row(exec, "scape::kernels::sum_values", (sum.n + summed - 1) / summed, sum);
    } else {
        for_each(exec, "scape::kernels::sum_values", sum.n, sum);
    }
}

template <class Code, class Place>
struct AddNumbers {
    const typename Code::Stored* message;
    float scale;
    Place place;
    float* out;
    KOKKOS_FORCEINLINE_FUNCTION void operator()(Index j) const {
        place.store(out, j, place.load(out, j) + scale * Code::decode(message[j]));
    }
};

}  // namespace

void pack(const Exec& exec, const ValueCode& code, const Selected& selected, Span<float> a,
          Rest rest, Span<unsigned char> message) {
    if (code.in_blocks()) return detail::pack_blocks(exec, code, selected, a, rest, message);
    with_place(selected, 0, [&](auto place) {
        with_number(code, [&](auto number) {
            using Code = decltype(number);
            using Source = Elements<decltype(place)>;
            for_each(exec, "scape::kernels::pack", count<Code>(selected, a, message),
                     PackNumbers<Code, Source>{Source{a.data(), place, rest == Rest::kept},
                                               typed<typename Code::Stored>(message)});
        });
    });
}

void pack_differences(const Exec& exec, const ValueCode& code, const Selected& selected,
                      Span<const float> master, Span<const float> replica, Index origin,
                      Span<unsigned char> message) {
    if (code.in_blocks()) {
        return detail::pack_blocks_of_differences(exec, code, selected, master, replica, origin,
                                                  message);
    }
    with_place(selected, origin, [&](auto place) {
        using Source = Differences<decltype(place)>;
        for_each(exec, "scape::kernels::pack_differences", count<Bf16>(selected, master, message),
                 PackNumbers<Bf16, Source>{Source{master.data(), replica.data(), place},
                                           typed<Bf16::Stored>(message)});
    });
}

void sum_values(const Exec& exec, const ValueCode& code, const Selected& selected,
                Span<const unsigned char> mine, Span<const unsigned char> others, int rank,
                float scale, bool compact, Span<float> out, Index origin) {
    if (mine.extent(0) == 0) return;
    if (code.in_blocks()) {
        return detail::sum_blocks(exec, code, selected, mine, others, rank, scale, compact, out,
                                  origin);
    }
    const int ranks = static_cast<int>(others.extent(0) / mine.extent(0)) + 1;
    with_number(code, [&](auto number) {
        using Code = decltype(number);
        using Stored = typename Code::Stored;
        const auto stride = static_cast<Index>(mine.extent(0) / sizeof(Stored));
        const auto sum = [&](auto place, Index n) {
            sum_numbers(exec, SumNumbers<Code, decltype(place)>{
                                  typed<Stored>(mine), typed<Stored>(others), stride, ranks, rank,
                                  scale, place, out.data(), n});
        };
        if (compact) {
            sum(detail::InOrder{0}, static_cast<Index>(out.extent(0)));
        } else {
            with_place(selected, origin,
                       [&](auto place) { sum(place, count<Code>(selected, out, mine)); });
        }
    });
}

void add_values(const Exec& exec, const ValueCode& code, const Selected& selected,
                Span<const unsigned char> message, float scale, Span<float> out, Index origin) {
    if (code.in_blocks())
        return detail::add_blocks(exec, code, selected, message, scale, out, origin);
    with_place(selected, origin, [&](auto place) {
        with_number(code, [&](auto number) {
            using Code = decltype(number);
            for_each(exec, "scape::kernels::add_values", count<Code>(selected, out, message),
                     AddNumbers<Code, decltype(place)>{typed<typename Code::Stored>(message), scale,
                                                       place, out.data()});
        });
    });
}

void unpack(const Exec& exec, Span<const float> values, Span<const Position> positions,
            Span<float> out) {
    for_each(
        exec, "scape::kernels::unpack", static_cast<Index>(positions.extent(0)),
        KOKKOS_LAMBDA(Index j) {
            const Position p = positions(j);
            if (p != no_position) out(p) = values(j);
        });
}

void clear(const Exec& exec, Span<const Position> positions, Span<float> out) {
    for_each(
        exec, "scape::kernels::clear", static_cast<Index>(positions.extent(0)),
        KOKKOS_LAMBDA(Index j) {
            const Position p = positions(j);
            if (p != no_position) out(p) = 0.f;
        });
}

void scale(const Exec& exec, float factor, Span<float> x) {
    for_each(
        exec, "scape::kernels::scale", static_cast<Index>(x.extent(0)),
        KOKKOS_LAMBDA(Index i) { x(i) = factor * x(i); });
}

}  // namespace scape::kernels

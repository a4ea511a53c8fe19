#include <scape/kernels/loops.hpp>
#include <scape/kernels/pack.hpp>

#include <cstring>

namespace scape::kernels {

namespace {

struct Fp32 {
    using Stored = float;
    KOKKOS_FORCEINLINE_FUNCTION static float encode(float x) { return x; }
    KOKKOS_FORCEINLINE_FUNCTION static float decode(float x) { return x; }
    KOKKOS_FORCEINLINE_FUNCTION static float rest(float, float) { return 0.f; }
};

struct Bf16 {
    using Stored = std::uint16_t;
    KOKKOS_FORCEINLINE_FUNCTION static std::uint16_t encode(float x) {
        std::uint32_t bits;
        std::memcpy(&bits, &x, sizeof bits);
        const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
        const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;  // rounding could make it infinite
        return static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
    }
    KOKKOS_FORCEINLINE_FUNCTION static float decode(std::uint16_t stored) {
        const std::uint32_t bits = static_cast<std::uint32_t>(stored) << 16;
        float x;
        std::memcpy(&x, &bits, sizeof x);
        return x;
    }
    KOKKOS_FORCEINLINE_FUNCTION static float rest(float x, float sent) { return x - sent; }
};

/// Calls f(Fp32()) or f(Bf16()).
template <class F>
void with_code(ValueCode code, const F& f) {
    if (code == ValueCode::fp32) {
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

template <class Code>
struct PackAt {
    float* a;
    const Position* positions;
    typename Code::Stored* message;
    Index n;
    bool keep;
    KOKKOS_FORCEINLINE_FUNCTION void operator()(Index j) const {
        const Position soon = positions[j + fetch_ahead < n ? j + fetch_ahead : j];
        prefetch_to_write(a + (soon == no_position ? 0 : soon));
        const Position p = positions[j];
        if (p == no_position) {
            message[j] = Code::encode(0.f);
            return;
        }
        const float x = a[p];
        const auto stored = Code::encode(x);
        message[j] = stored;
        if (keep) a[p] = Code::rest(x, Code::decode(stored));
    }
};

template <class Code>
struct PackAll {
    float* a;
    typename Code::Stored* message;
    bool keep;
    KOKKOS_FORCEINLINE_FUNCTION void operator()(Index j) const {
        const float x = a[j];
        const auto stored = Code::encode(x);
        message[j] = stored;
        if (keep) a[j] = Code::rest(x, Code::decode(stored));
    }
};

template <class Code>
struct SumValues {
    const typename Code::Stored* mine;
    const typename Code::Stored* others;  // (P-1, stride)
    Index stride;                         // values in one message, padding included
    int ranks, rank;
    float scale;
    const Position* positions;  // null: value j belongs at j
    float* out;
    Index origin;

    KOKKOS_FORCEINLINE_FUNCTION float value(int p, Index j) const {
        return Code::decode(p == rank ? mine[j] : others[(p < rank ? p : p - 1) * stride + j]);
    }
    KOKKOS_FORCEINLINE_FUNCTION void operator()(Index j) const {
        float sum = value(0, j);
        for (int p = 1; p < ranks; ++p) sum += value(p, j);
        out[positions == nullptr ? j : static_cast<Index>(positions[j]) - origin] = scale * sum;
    }
};

}  // namespace

void pack(const Exec& exec, ValueCode code, Span<float> a, Span<const Position> positions,
          Rest rest, Span<unsigned char> message) {
    const auto n = static_cast<Index>(positions.extent(0));
    with_code(code, [&](auto c) {
        using Code = decltype(c);
        for_each(exec, "scape::kernels::pack", n,
                 PackAt<Code>{a.data(), positions.data(), typed<typename Code::Stored>(message), n,
                              rest == Rest::kept});
    });
}

void pack_all(const Exec& exec, ValueCode code, Span<float> a, Rest rest,
              Span<unsigned char> message) {
    with_code(code, [&](auto c) {
        using Code = decltype(c);
        for_each(
            exec, "scape::kernels::pack_all", static_cast<Index>(a.extent(0)),
            PackAll<Code>{a.data(), typed<typename Code::Stored>(message), rest == Rest::kept});
    });
}

void sum_values(const Exec& exec, ValueCode code, Span<const unsigned char> mine,
                Span<const unsigned char> others, int rank, float scale,
                Span<const Position> positions, bool compact, Span<float> out, Index origin) {
    const Index n = compact ? out.extent(0) : positions.extent(0);
    if (n == 0 || mine.extent(0) == 0) return;
    const Index ranks = static_cast<Index>(others.extent(0) / mine.extent(0)) + 1;
    with_code(code, [&](auto c) {
        using Code = decltype(c);
        using Stored = typename Code::Stored;
        const Index stride = static_cast<Index>(mine.extent(0) / sizeof(Stored));
        for_each(exec, "scape::kernels::sum_values", n,
                 SumValues<Code>{typed<Stored>(mine), typed<Stored>(others), stride,
                                 static_cast<int>(ranks), rank, scale,
                                 compact ? nullptr : positions.data(), out.data(), origin});
    });
}

namespace {

template <class Code>
struct AddValues {
    const typename Code::Stored* message;
    float scale;
    const Position* positions;
    float* out;
    Index origin;
    KOKKOS_FORCEINLINE_FUNCTION void operator()(Index j) const {
        const Position p = positions[j];
        if (p != no_position)
            out[static_cast<Index>(p) - origin] += scale * Code::decode(message[j]);
    }
};

}  // namespace

void add_values(const Exec& exec, ValueCode code, Span<const unsigned char> message, float scale,
                Span<const Position> positions, Span<float> out, Index origin) {
    with_code(code, [&](auto c) {
        using Code = decltype(c);
        for_each(exec, "scape::kernels::add_values", static_cast<Index>(positions.extent(0)),
                 AddValues<Code>{typed<typename Code::Stored>(message), scale, positions.data(),
                                 out.data(), origin});
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

#include <scape/kernels/loops.hpp>
#include <scape/kernels/reduce.hpp>

#include <cstring>

namespace scape::kernels {

namespace {

constexpr Index piece_chunk = 1024;  // elements of one host task: the sum stays in the first cache

/// Pieces 0 .. P-1 added in this order, then scaled. Host: a chunk of elements; device: one.
struct AddPieces {
    float* mine;
    const float* others;  // (P-1, n)
    Index n;
    int ranks, rank;
    float scale;

    KOKKOS_INLINE_FUNCTION const float* piece(int p) const {
        return p == rank ? mine : others + (p < rank ? p : p - 1) * n;
    }
    KOKKOS_INLINE_FUNCTION void operator()(Index k) const {
        if constexpr (exec_is_host) {
            const Index begin = k * piece_chunk;
            chunk(begin, n - begin < piece_chunk ? n - begin : piece_chunk);
        } else {
            float sum = piece(0)[k];
            for (int p = 1; p < ranks; ++p) sum += piece(p)[k];
            mine[k] = scale * sum;
        }
    }
    KOKKOS_INLINE_FUNCTION void chunk(Index begin, Index count) const {
        float sum[piece_chunk];
        float* out = mine + begin;
        const float* first = piece(0) + begin;
        const float factor = scale;
        if (ranks == 2) {
            const float* second = piece(1) + begin;
#pragma omp simd
            for (Index i = 0; i < count; ++i) out[i] = factor * (first[i] + second[i]);
            return;
        }
#pragma omp simd
        for (Index i = 0; i < count; ++i) sum[i] = first[i];
        for (int p = 1; p < ranks; ++p) {
            const float* next = piece(p) + begin;
#pragma omp simd
            for (Index i = 0; i < count; ++i) sum[i] += next[i];
        }
#pragma omp simd
        for (Index i = 0; i < count; ++i) out[i] = factor * sum[i];
    }
};

constexpr Index most_partial_sums = 1024;
constexpr Index least_block = 4096;  // elements

/// Elements of a block, by n alone; no block is empty.
Index block_size(Index n) {
    const Index even = (n + most_partial_sums - 1) / most_partial_sums;
    return round_up(even > least_block ? even : least_block, 64);
}

/// Position-dependent mix of one element (the finaliser of splitmix64). Sums of it modulo 2^64 do
/// not depend on the order.
KOKKOS_FORCEINLINE_FUNCTION std::uint64_t mix(float value, Index i) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    std::uint64_t z = bits + static_cast<std::uint64_t>(i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

constexpr Index hash_chunk = exec_is_host ? 4096 : 1;  // elements of one task

struct HashChunk {
    const float* x;
    Index n;
    KOKKOS_INLINE_FUNCTION void operator()(Index chunk, std::uint64_t& hash) const {
        const Index begin = chunk * hash_chunk;
        const Index end = begin + hash_chunk < n ? begin + hash_chunk : n;
        std::uint64_t sum = 0;
#pragma omp simd reduction(+ : sum)
        for (Index i = begin; i < end; ++i) sum += mix(x[i], i);
        hash += sum;
    }
};

}  // namespace

void add_pieces(const Exec& exec, Span<float> mine, Span<const float> others, int rank,
                float scale) {
    const Index n = mine.extent(0);
    if (n == 0) return;
    const int ranks = static_cast<int>(static_cast<Index>(others.extent(0)) / n) + 1;
    if (ranks == 1 && scale == 1.f) return;
    const Index tasks = exec_is_host ? (n + piece_chunk - 1) / piece_chunk : n;
    Kokkos::parallel_for("scape::kernels::add_pieces", range(exec, tasks),
                         AddPieces{mine.data(), others.data(), n, ranks, rank, scale});
}

Index sum_workspace(Index n) {
    const Index blocks = (n + least_block - 1) / least_block;
    return blocks < most_partial_sums ? blocks : most_partial_sums;
}

void add_sum_of_squares(const Exec& exec, Span<const float> x, Span<double> result,
                        Span<double> workspace) {
    const Index n = x.extent(0);
    if (n == 0) return;
    const Index size = block_size(n), blocks = (n + size - 1) / size;
    for_each_row(
        exec, "scape::kernels::add_sum_of_squares", blocks, KOKKOS_LAMBDA(const Row& row, Index b) {
            const float* block = x.data() + b * size;
            const Index count = n - b * size < size ? n - b * size : size;
            const double sum = row.sum(count, [&](Index i) {
                const double v = block[i];
                return v * v;
            });
            row.once([&] { workspace(b) = sum; });
        });
    Kokkos::parallel_for(
        "scape::kernels::add_partial_sums", range(exec, 1), KOKKOS_LAMBDA(Index) {
            double sum = 0;
            for (Index b = 0; b < blocks; ++b) sum += workspace(b);
            result(0) += sum;
        });
}

std::uint64_t hash_bits(const Exec& exec, Span<const float> x) {
    const Index n = x.extent(0);
    std::uint64_t hash = 0;
    Kokkos::parallel_reduce("scape::kernels::hash_bits",
                            range(exec, (n + hash_chunk - 1) / hash_chunk), HashChunk{x.data(), n},
                            hash);
    return hash;
}

}  // namespace scape::kernels

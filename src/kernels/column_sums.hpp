#pragma once
/// @file
/// Column sums of an (N, C) matrix in two stages without atomics, so that the order of addition
/// depends on the shape alone:
///
///     1  rows are cut into at most row_blocks blocks;  partial (blocks, C) = sums over a block
///     2  out (C) += partial, block after block

#include <scape/kernels/loops.hpp>

#include <string>

namespace scape::kernels::detail {

/// More than the threads of a host; on a device enough for row_blocks * C threads to fill it.
inline constexpr Index row_blocks = exec_is_host ? 64 : 256;

struct RowBlocks {
    Index rows;
    Index rows_per_block;
    Index count;  // blocks that hold rows
    explicit RowBlocks(Index n)
        : rows(n),
          rows_per_block((n + row_blocks - 1) / row_blocks),
          count(n == 0 ? 0 : (n + rows_per_block - 1) / rows_per_block) {}
    KOKKOS_INLINE_FUNCTION Index begin(Index block) const { return block * rows_per_block; }
    KOKKOS_INLINE_FUNCTION Index end(Index block) const {
        const Index e = begin(block) + rows_per_block;
        return e < rows ? e : rows;
    }
};

/// Stage 1 on a host: one block of rows, vectorised over columns. value(i, j) is the summand.
template <class F>
struct BlockSumsOnHost {
    F value;
    RowBlocks blocks;
    Index columns;
    float* partial;
    KOKKOS_INLINE_FUNCTION void operator()(Index block) const {
        float* sum = partial + block * columns;
        const Index begin = blocks.begin(block), end = blocks.end(block);
        const F f = value;
        const Index n = columns;
#pragma omp simd
        for (Index j = 0; j < n; ++j) sum[j] = f(begin, j);
        for (Index i = begin + 1; i < end; ++i) {
#pragma omp simd
            for (Index j = 0; j < n; ++j) sum[j] += f(i, j);
        }
    }
};

/// Stage 1 on a device: one thread per block and column, neighbours on neighbouring columns.
template <class F>
struct BlockSumOnDevice {
    F value;
    RowBlocks blocks;
    Index columns;
    float* partial;
    KOKKOS_INLINE_FUNCTION void operator()(Index k) const {
        const Index block = k / columns, j = k % columns;
        float sum = 0;
        for (Index i = blocks.begin(block); i < blocks.end(block); ++i) sum += value(i, j);
        partial[k] = sum;
    }
};

inline constexpr Index column_strip = 256;

/// Stage 2: on a host a strip of columns, on a device one column.
struct AddPartialSums {
    const float* partial;
    Index blocks, columns;
    float* out;
    KOKKOS_INLINE_FUNCTION void operator()(Index k) const {
        if constexpr (exec_is_host) {
            const Index begin = k * column_strip;
            const Index n = columns - begin < column_strip ? columns - begin : column_strip;
            float sum[column_strip] = {};
            for (Index b = 0; b < blocks; ++b) {
                const float* p = partial + b * columns + begin;
#pragma omp simd
                for (Index j = 0; j < n; ++j) sum[j] += p[j];
            }
            float* o = out + begin;
#pragma omp simd
            for (Index j = 0; j < n; ++j) o[j] += sum[j];
        } else {
            float sum = 0;
            for (Index b = 0; b < blocks; ++b) sum += partial[b * columns + k];
            out[k] += sum;
        }
    }
};

inline void add_partial_sums(const Exec& exec, const std::string& label, const float* partial,
                             Index blocks, Span<float> out) {
    const Index columns = out.extent(0);
    const Index tasks = exec_is_host ? (columns + column_strip - 1) / column_strip : columns;
    Kokkos::parallel_for(label, range(exec, tasks),
                         AddPartialSums{partial, blocks, columns, out.data()});
}

/// out += column sums of value(i, j) over `rows` rows. partial: row_blocks * C elements.
template <class F>
void add_column_sums(const Exec& exec, const std::string& label, Index rows, const F& value,
                     Span<float> out, float* partial) {
    const Index columns = out.extent(0);
    const RowBlocks blocks(rows);
    if constexpr (exec_is_host) {
        Kokkos::parallel_for(label, range(exec, blocks.count),
                             BlockSumsOnHost<F>{value, blocks, columns, partial});
    } else {
        Kokkos::parallel_for(label, range(exec, blocks.count * columns),
                             BlockSumOnDevice<F>{value, blocks, columns, partial});
    }
    add_partial_sums(exec, label, partial, blocks.count, out);
}

}  // namespace scape::kernels::detail

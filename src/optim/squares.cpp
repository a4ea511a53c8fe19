#include <scape/kernels/loops.hpp>
#include <scape/kernels/pointwise.hpp>
#include <scape/kernels/reduce.hpp>
#include <scape/optim/squares.hpp>

namespace scape::optim {

namespace {

void sum_in_order(const Exec& exec, Span<const double> x, Span<double> result) {
    const Index n = x.extent(0);
    Kokkos::parallel_for(
        "scape::optim::sum_squares", kernels::range(exec, 1), KOKKOS_LAMBDA(Index) {
            for (Index i = 0; i < n; ++i) result(0) += x(i);
        });
}

}  // namespace

Squares::Squares(const Sharding& sharding, int parts)
    : of_bucket_("scape::optim::squares", static_cast<std::size_t>(sharding.buckets())),
      partial_(
          "scape::optim::partial_squares",
          static_cast<std::size_t>(kernels::sum_workspace(sharding.largest_bucket() / parts))) {}

void Squares::clear(const Exec& exec) {
    kernels::fill_zero<double>(exec, of_bucket_);
}

void Squares::add(const Exec& exec, int bucket, Span<const float> values) {
    kernels::add_sum_of_squares(exec, values, slice(of_bucket_, bucket, bucket + 1), partial_);
}

void Squares::sum(const Exec& exec, Span<double> result) {
    sum_in_order(exec, of_bucket_, result);
}

}  // namespace scape::optim

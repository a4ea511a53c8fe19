#include <scape/base/fence.hpp>
#include <scape/base/profiling.hpp>
#include <scape/kernels/reduce.hpp>
#include <scape/optim/dense_exchange.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace scape::optim {

DenseExchange::DenseExchange(comm::Communicator& communicator, const Sharding& sharding,
                             Span<float> parameters, Span<float> gradients, int buffers)
    : comm_(communicator),
      sharding_(sharding),
      parameters_(parameters),
      gradients_(gradients),
      unsent_(sharding.buckets()),
      gathering_(sharding.buckets()),
      partial_squares_("scape::optim::partial_squares",
                       static_cast<std::size_t>(
                           kernels::sum_workspace(sharding.largest_bucket() / sharding.ranks()))) {
    const auto whole = static_cast<std::size_t>(sharding.extent());
    if (sharding.ranks() != communicator.size() || parameters.extent(0) != whole ||
        gradients.extent(0) != whole || buffers < 1) {
        throw std::logic_error(
            fmt::format("dense_exchange: a sharding of {} elements for {} ranks, but {} ranks, {} "
                        "parameters, {} gradients, {} buffers",
                        whole, sharding.ranks(), communicator.size(), parameters.extent(0),
                        gradients.extent(0), buffers));
    }
    if (communicator.size() == 1) return;
    const Index received =
        sharding.largest_bucket() / communicator.size() * (communicator.size() - 1);
    for (int i = 0; i < std::min(buffers, sharding.buckets()); ++i) {
        buffers_.emplace_back(
            Kokkos::view_alloc(Kokkos::WithoutInitializing, "scape::optim::received_gradients"),
            static_cast<std::size_t>(received));
        free_.push_back(i);
    }
}

Span<float> DenseExchange::own(Span<float> flat, int bucket) const {
    const Range mine = sharding_.piece(bucket, comm_.rank());
    return slice(flat, mine.begin, mine.end);
}

void DenseExchange::begin_step() {
    // Only a step that was given up leaves reductions behind.
    while (!reducing_.empty()) {
        free_.push_back(reducing_.front().buffer);
        reducing_.pop_front();
    }
    unsent_ = sharding_.buckets();
}

void DenseExchange::gradients_final(const Exec& exec, Index begin) {
    while (unsent_ > 0 && sharding_.bucket(unsent_ - 1).begin >= begin) {
        --unsent_;
        if (comm_.size() > 1) begin_reduce(exec, unsent_);
    }
}

void DenseExchange::begin_reduce(const Exec& exec, int bucket) {
    if (free_.empty()) finish_oldest(exec);
    const int buffer = free_.back();
    free_.pop_back();
    const Range r = sharding_.bucket(bucket);
    const Index received = r.size() / comm_.size() * (comm_.size() - 1);
    comm::Pending pending = comm_.all_to_all(exec, slice(gradients_, r.begin, r.end),
                                             slice(buffers_[buffer], 0, received));
    reducing_.push_back({bucket, buffer, std::move(pending)});
}

void DenseExchange::finish_oldest(const Exec& exec) {
    Reduction oldest = std::move(reducing_.front());
    reducing_.pop_front();
    wait(exec, oldest.pending);
    const Span<float> mine = my_gradient(oldest.bucket);
    const Index received = static_cast<Index>(mine.extent(0)) * (comm_.size() - 1);
    kernels::add_pieces(exec, mine, slice(buffers_[oldest.buffer], 0, received), comm_.rank(),
                        1.f / static_cast<float>(comm_.size()));
    free_.push_back(oldest.buffer);
}

void DenseExchange::finish_reduce(const Exec& exec) {
    gradients_final(exec, 0);
    while (!reducing_.empty()) finish_oldest(exec);
}

void DenseExchange::add_sum_of_squares(const Exec& exec, Span<double> result) {
    for (int b = 0; b < sharding_.buckets(); ++b) {
        kernels::add_sum_of_squares(exec, my_gradient(b), result, partial_squares_);
    }
}

void DenseExchange::gather_begin(const Exec& exec, int bucket) {
    if (comm_.size() == 1) return;
    const Range r = sharding_.bucket(bucket);
    gathering_[bucket] = comm_.all_gather(exec, slice(parameters_, r.begin, r.end));
}

void DenseExchange::before_use(const Exec& exec, Index end) {
    for (int b = 0; b < sharding_.buckets() && sharding_.bucket(b).begin < end; ++b) {
        if (gathering_[b]) wait(exec, gathering_[b]);
    }
}

void DenseExchange::finish_gathers(const Exec& exec) {
    before_use(exec, sharding_.extent());
}

void DenseExchange::wait(const Exec& exec, comm::Pending& pending) {
    const Timer timer;
    pending.wait(exec);
    wait_seconds_ += timer.seconds();
}

void DenseExchange::progress() {
    for (Reduction& r : reducing_) r.pending.test();
    for (comm::Pending& p : gathering_) p.test();
}

Index DenseExchange::buffer_bytes(const Sharding& sharding, int buffers) {
    if (sharding.ranks() == 1) return 0;
    const Index received = sharding.largest_bucket() / sharding.ranks() * (sharding.ranks() - 1);
    return std::min(buffers, sharding.buckets()) * received * static_cast<Index>(sizeof(float));
}

}  // namespace scape::optim

#include <scape/base/profiling.hpp>
#include <scape/kernels/pointwise.hpp>
#include <scape/optim/error_feedback.hpp>

namespace scape::optim {

namespace {

io::Storage storage_of(config::FeedbackStorage storage) {
    switch (storage) {
        case config::FeedbackStorage::host:
            return io::Storage::host;
        case config::FeedbackStorage::hdf5:
            return io::Storage::hdf5;
        default:
            return io::Storage::device;
    }
}

std::vector<Index> chunks_of(const Sharding& sharding) {
    std::vector<Index> sizes;
    for (int b = 0; b < sharding.buckets(); ++b) sizes.push_back(sharding.bucket(b).size());
    return sizes;
}

}  // namespace

ErrorFeedback::ErrorFeedback(const config::ErrorFeedbackSection& config, const Sharding& sharding,
                             int rank)
    : sharding_(sharding) {
    if (config.storage == config::FeedbackStorage::fused) return;
    store_ =
        io::make_buffer_store(storage_of(config.storage), chunks_of(sharding), config.path, rank);
    squares_ = std::make_unique<Squares>(sharding, 1);
}

void ErrorFeedback::begin_step(const Exec& exec) {
    if (!fused()) squares_->clear(exec);
}

void ErrorFeedback::expect() {
    if (fused() || zero_) return;
    std::vector<int> order;
    for (int b = sharding_.buckets(); b-- > 0;) order.push_back(b);
    store_->expect(order);
}

void ErrorFeedback::add(const Exec& exec, int bucket, Span<float> gradients) {
    if (fused()) return;
    const Region region("scape::optim::error_feedback");
    if (!zero_) store_->add_to(exec, bucket, gradients);
    squares_->add(exec, bucket, gradients);
}

void ErrorFeedback::add_check(const Exec& exec, Span<double> result) {
    if (!fused()) squares_->sum(exec, result);
}

void ErrorFeedback::commit(const Exec& exec, Span<const float> gradients) {
    if (fused()) return;
    const Region region("scape::optim::error_feedback");
    for (int b = 0; b < sharding_.buckets(); ++b) {
        const Range r = sharding_.bucket(b);
        store_->write(exec, b, slice(gradients, r.begin, r.end));
    }
    zero_ = false;
}

void ErrorFeedback::load(const Exec& exec, Span<float> gradients) {
    finish(exec);
    kernels::fill_zero<float>(exec, gradients);
    expect();
    for (int b = sharding_.buckets(); b-- > 0;) {
        const Range r = sharding_.bucket(b);
        add(exec, b, slice(gradients, r.begin, r.end));
    }
}

void ErrorFeedback::finish(const Exec& exec) {
    if (!fused()) store_->finish(exec);
}

io::BufferStore::Cost ErrorFeedback::cost() const {
    return fused() ? io::BufferStore::Cost{} : store_->cost();
}

Index ErrorFeedback::memory_bytes() const {
    if (fused()) return 0;
    return store_->device_bytes() + (exec_is_host ? store_->host_bytes() : 0);
}

Index ErrorFeedback::memory_bytes(const config::ErrorFeedbackSection& config,
                                  const Sharding& sharding) {
    if (config.storage == config::FeedbackStorage::fused) return 0;
    const io::StoreBytes bytes =
        io::buffer_store_bytes(storage_of(config.storage), chunks_of(sharding));
    return bytes.device + (exec_is_host ? bytes.host : 0);
}

void ErrorFeedback::reset_cost() {
    if (!fused()) store_->reset_cost();
}

}  // namespace scape::optim

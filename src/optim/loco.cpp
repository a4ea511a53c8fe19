#include <scape/base/profiling.hpp>
#include <scape/kernels/pointwise.hpp>
#include <scape/optim/loco.hpp>

namespace scape::optim {

using kernels::Levels;
using kernels::Selected;
using kernels::ValueCode;

namespace {

/// What was decoded into fp32, for a checkpoint, is coded into the same again.
ValueCode error_code(const ValueCode& messages) {
    return {Levels::linear, 8, messages.block};
}

}  // namespace

Loco::Loco(const config::LocoSection& config, const ValueCode& code, const MaskPlan& everything,
           int rank)
    : config_(config),
      code_(code),
      sharding_(everything.sharding()),
      layout_(error_code(code), everything, rank) {
    layout_.set(Exec(), everything);
    begin_.push_back(0);
    for (int b = 0; b < sharding_.buckets(); ++b)
        begin_.push_back(begin_.back() + sharding_.ranks() * layout_.part_bytes(b));
    for (Vec<unsigned char>& error : errors_)
        error =
            Vec<unsigned char>("scape::optim::loco_error", static_cast<std::size_t>(begin_.back()));
}

Span<unsigned char> Loco::error(int which, int bucket) const {
    const auto b = static_cast<std::size_t>(bucket);
    return slice(errors_[which], begin_[b], begin_[b + 1]);
}

void Loco::pack(const Exec& exec, int bucket, const Selected& selected, Span<const float> gradients,
                Span<unsigned char> message) {
    kernels::LocoError e;
    e.segments = layout_.whole(bucket, {}).segments;
    if (!zero_) e.before = error(current_, bucket);
    e.after = error(1 - current_, bucket);
    e.beta = static_cast<float>(config_.beta);
    kernels::pack_loco(exec, code_, selected, gradients, e, message);
}

void Loco::commit() {
    current_ = 1 - current_;
    ++steps_;
    zero_ = config_.reset_every > 0 && steps_ >= config_.reset_every;
    if (zero_) steps_ = 0;
}

void Loco::load(const Exec& exec, Span<float> gradients) {
    kernels::fill_zero<float>(exec, gradients);
    if (zero_) return;
    for (int b = 0; b < sharding_.buckets(); ++b) {
        const Range r = sharding_.bucket(b);
        kernels::add_values(exec, layout_.code(), layout_.whole(b, {}), error(current_, b), 1.f,
                            slice(gradients, r.begin, r.end));
    }
}

void Loco::store(const Exec& exec, Span<float> gradients) {
    for (int b = 0; b < sharding_.buckets(); ++b) {
        const Range r = sharding_.bucket(b);
        kernels::pack(exec, layout_.code(), layout_.whole(b, {}), slice(gradients, r.begin, r.end),
                      kernels::Rest::untouched, error(current_, b));
    }
    zero_ = false;
}

Index Loco::memory_bytes() const {
    return 2 * begin_.back() + layout_.device_bytes();
}

Index Loco::memory_bytes(const ValueCode& code, const MaskPlan& everything) {
    const ValueCode error = error_code(code);
    const Sharding& sharding = everything.sharding();
    Index bytes = MessageLayout::device_bytes(error, everything);
    for (int b = 0; b < sharding.buckets(); ++b)
        bytes += 2 * sharding.ranks() * everything.part_bytes(error, b, true);
    return bytes;
}

}  // namespace scape::optim
